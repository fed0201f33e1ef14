"""What an engine says of its own settings (`/server_info`), as far as the two sides of a transfer must agree on it."""

from __future__ import annotations

import msgspec

from pdctl.evidence.records import Place, Problem


class _Body(msgspec.Struct, frozen=True):
    page_size: int | str | None = None
    kv_cache_dtype: str | None = None
    contract: dict[str, str] | None = None


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    file: str
    """Where it was read, below the incident directory."""
    page_size: str | None = None
    kv_cache_dtype: str | None = None
    contract: dict[str, str] = {}
    """Of our own engine (engine/transfer/protocol/contract.py): field -> value. Who differs in one is refused."""

    def place(self, key: str) -> Place:
        """Return where a value stands."""
        return Place(self.file, pointer=key)


def server_info(data: bytes, file: str) -> tuple[ServerInfo | None, tuple[Problem, ...]]:
    """Return what an answer says."""
    try:
        body = msgspec.json.decode(data, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return None, (Problem(Place(file), f"is no answer of /server_info: {error}"),)
    page_size = None if body.page_size is None else str(body.page_size)
    made = ServerInfo(file=file, page_size=page_size, kv_cache_dtype=body.kv_cache_dtype, contract=body.contract or {})
    return made, ()
