"""HTTP: OpenAI and SGLang-style routes, streaming, health, metrics."""
