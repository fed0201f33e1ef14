"""KV pages from prefill to decode: rooms, frames, registry, source side, reader side, fence, contract.

Only this package knows NIXL and the control channel. Facade: `engine.transfer.interface`.
"""
