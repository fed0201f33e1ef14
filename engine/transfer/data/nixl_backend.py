"""The only place that knows NIXL: an agent over one KV pool, without NIXL's core-burning progress thread.

Without that thread nothing moves unless somebody calls: a reader polls its handles, a source polls
`progress`. One thread uses an agent at a time. Failed transfers raise `nixl*Error` (seen in practice) or
return "ERR" (in the API): both become `ReadState.ERROR` here.

Known fault below us (UCX of nixl 1.5.1, `UCX_TLS=tcp`): a source that answers the READs of a reader whose
connection just broke aborts its process, see `engine.transfer.data.plane_process`.
"""

from __future__ import annotations

import importlib
from enum import StrEnum
from typing import Any

from engine.errors import TransferError
from engine.kvcache.layout import PageMemory
from engine.transfer.data.runs import Descriptors

MODULES = ("nixl_cu12._api", "nixl_cu13._api", "nixl._api")


class ReadState(StrEnum):
    """Where a posted READ is."""

    RUNNING = "PROC"
    DONE = "DONE"
    ERROR = "ERR"


class Read:
    """One posted READ; `error` says why it failed."""

    __slots__ = ("error", "handle", "state")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.state = ReadState.RUNNING
        self.error = ""


def _load_api() -> Any:
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise TransferError(
        "no NIXL found (tried nixl_cu12, nixl_cu13, nixl): install the extra with pip install 'pdctl[engine]'"
    )


class Agent:
    """A NIXL agent with the pool registered. Creating one takes 70-150 ms, the first in a process 0.5 s.

    Raises TransferError when NIXL is missing or no backend starts (UCX_TLS must contain tcp).
    """

    def __init__(self, name: str, pool: PageMemory) -> None:
        api = _load_api()
        self.name = name
        self._memory = "DRAM" if pool.device_index is None else "VRAM"
        self._peers: dict[bytes, str] = {}
        try:
            config = api.nixl_agent_config(enable_prog_thread=False, backends=["UCX"])
            self._agent: Any = api.nixl_agent(name, config)
            region = [(pool.address, pool.size_bytes, pool.device_index or 0, "")]
            self._registered: Any = self._agent.register_memory(region, self._memory)
        except Exception as error:
            raise TransferError(
                f"NIXL agent {name} did not start: {error}. If UCX_TLS is set, it must contain tcp"
            ) from error

    @property
    def metadata(self) -> bytes:
        """Return what a peer needs to reach this agent's memory; about 0.5 kB."""
        data: bytes = self._agent.get_agent_metadata()
        return data

    def add_peer(self, metadata: bytes) -> str:
        """Load a peer's metadata and return its agent name; raises TransferError when it is not usable."""
        try:
            name = self._agent.add_remote_agent(metadata)
        except Exception as error:
            raise TransferError(f"NIXL does not accept the peer's metadata: {error}") from error
        return name.decode() if isinstance(name, bytes) else str(name)

    def read(self, peer: str, here: Descriptors, there: Descriptors) -> Read:
        """Post a READ of `there` into `here`. Over shared memory the copy is done inside this call.

        Never raises for a dead or unknown peer: the returned `Read` is then in state ERROR.
        """
        read = Read(None)
        try:
            local = self._agent.get_xfer_descs(here, self._memory)
            remote = self._agent.get_xfer_descs(there, self._memory)
            read.handle = self._agent.initialize_xfer("READ", local, remote, peer, b"")
            read.state = ReadState(self._agent.transfer(read.handle))
        except Exception as error:
            read.state, read.error = ReadState.ERROR, f"{type(error).__name__}: {error}"
        return read

    def poll(self, read: Read) -> ReadState:
        """Move a READ on and return its state; a settled one is not asked again. Costs 0.5 us."""
        if read.state is ReadState.RUNNING:
            try:
                read.state = ReadState(self._agent.check_xfer_state(read.handle))
            except Exception as error:
                read.state, read.error = ReadState.ERROR, f"{type(error).__name__}: {error}"
        return read.state

    def release(self, read: Read) -> None:
        """Free a settled READ's handle. Releasing a running one would not cancel it: drop the agent."""
        handle, read.handle = read.handle, None
        if handle is not None:
            try:
                self._agent.release_xfer_handle(handle)
            except Exception as error:
                read.error = read.error or f"release: {error}"

    def progress(self) -> None:
        """Let peers' READs of this agent's memory move; costs 0.5 us when there is nothing to do."""
        self._agent.get_new_notifs()

    def drop(self, reads: list[Read]) -> None:
        """Release all and destroy the agent: afterwards no byte of its READs can arrive. Takes 4-9 ms."""
        for read in reads:
            self.release(read)
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.deregister_memory(self._registered)
            self._registered = None
            del agent
