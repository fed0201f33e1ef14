"""Checkpoints, the Llama/Qwen model, sampling."""
