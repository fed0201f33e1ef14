"""What both control threads share: their loop, the ZeroMQ channel and its key, the registry, the canary."""
