"""A small prefill/decode serving engine that pulls KV pages over NIXL."""

PROTOCOL_VERSION = 2
"""Version of the control frames and of the KV layout; a peer with another one is refused by the contract."""
