"""KV pages from prefill to decode.

Only this package knows NIXL and the control channel. Who serves sees `interface` alone. `protocol` says what the two
sides may do and say, without I/O; `control` holds what both control threads share; `prefill` and `decode` are the two
sides; `data` moves and sums the bytes.
"""
