"""The data-plane request: proves that KV really travels, and says how long each stage took."""
