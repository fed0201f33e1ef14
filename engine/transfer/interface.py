"""What the scheduler loop and the transfer threads say to each other.

The loop calls methods of `Source` (prefill) or `Reader` (decode); they put a command on a queue and return at once.
The loop takes events with `poll()`, never blocking. **Pages of a room change owner only by an event**: the loop may ask
for an end (`fail`), but frees pages only when `Committed`, `Failed` (prefill) or `Fenced` (decode) says so. So the
transfer threads alone decide between COMMITTED and GONE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from engine.messages import TokenLogprob
from engine.observe.records import PeerTransfer, RoomRecord, Sample


class FailReason(StrEnum):
    """Why a room failed. `status` of the HTTP answer is decided in the scheduler."""

    PAIRING_TIMEOUT = "pairing_timeout"
    """The other leg never came (10 s)."""
    PEER_GONE = "peer_gone"
    """The peer's incarnation ended: its connection broke, or it came back as another one."""
    PEER_SILENT = "peer_silent"
    """No frame from the peer for 5 s."""
    PEER_STUCK = "peer_stuck"
    """Frames come, but the peer's loop does not move."""
    PEER_REFUSED = "peer_refused"
    """The peer answered REFUSED (full, draining)."""
    CONTRACT_MISMATCH = "contract_mismatch"
    PROMPT_MISMATCH = "prompt_mismatch"
    """Both legs have the room, but length or hash of the token ids differ."""
    CHECKSUM_MISMATCH = "checksum_mismatch"
    READ_FAILED = "read_failed"
    UNREACHABLE = "unreachable"
    """The prefill's registry or control channel could not be reached."""
    GONE = "gone"
    """Prefill no longer held the pages when COMMIT came."""
    ABORTED = "aborted"
    """Client, operator or deadline; `detail` says which."""
    DRAINING = "draining"


class FirstToken(msgspec.Struct, frozen=True):
    """What prefill sampled for position 0 of the answer; rides on the last READY."""

    token_id: int
    logprob: TokenLogprob | None
    finish: str | None
    """`stop` | `length` when this token ends the request: then nothing is read."""
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Paired:
    """Prefill: the offer is here and fits; compute may begin."""

    rid: str


@dataclass(frozen=True, slots=True)
class Committed:
    """Prefill: COMMITTED was answered; the pages and the request are done."""

    rid: str


@dataclass(frozen=True, slots=True)
class WantPages:
    """Decode: the first READY came; take pages for the whole prompt and call `grant`."""

    rid: str


@dataclass(frozen=True, slots=True)
class Landed:
    """Decode: all pages verified and COMMITTED received; the sequence may decode."""

    rid: str
    first: FirstToken


@dataclass(frozen=True, slots=True)
class Failed:
    """The room ended otherwise. Prefill: its pages are free. Decode: granted pages stay fencing until `Fenced`."""

    rid: str
    reason: FailReason
    detail: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """Decode: no read can touch the room's pages any more; they are free."""

    rid: str


@dataclass(frozen=True, slots=True)
class Summed:
    """Decode: one rank's checksums of the pages that `sum_pages` named: uint32 `[pages, the rank's heads]`."""

    rid: str
    rank: int
    sums: bytes


Event = Paired | Committed | WantPages | Landed | Failed | Fenced | Summed


class Transfer(Protocol):
    """What both sides share."""

    @property
    def wakeup_fd(self) -> int:
        """Readable while events wait; `poll` clears it."""

    def start(self) -> None:
        """Bind or connect, register memory, start the supervised threads."""

    def poll(self) -> list[Event]:
        """Return the events since the last call; never blocks."""

    def fail(self, rid: str, reason: FailReason, detail: str) -> None:
        """Ask to end a room (abort, deadline, local error); an event follows, unless it has ended already."""

    def progress(self, loop_tick: int, longest_step_s: float) -> None:
        """Tell the heartbeats where the loop is; called once a turn, also when idle."""

    def samples(self) -> list[Sample]:
        """Return the transfer metrics from live state; callable from any thread, never blocks."""

    def problems(self) -> list[str]:
        """Return what makes this instance unfit (for `/health`): dead threads, no working peer among those it has."""

    def use_canary_page(self, page: int) -> None:
        """Use this page of the pool, which no ledger hands out, for canaries. Before `start`."""

    def peer_transfers(self) -> list[PeerTransfer]:
        """Return what the last canary READ with each peer found."""

    def refused_peers(self) -> dict[str, str]:
        """Return peers refused by the contract, with field and both values."""

    def drain(self) -> None:
        """Refuse new offers from now on."""

    def stop(self) -> None:
        """Say GOODBYE, stop the threads, drop the agents, close the sockets."""


class Source(Transfer, Protocol):
    """Prefill's side."""

    @property
    def control_endpoint(self) -> str:
        """`tcp://host:port` where the control channel is bound (after `start`)."""

    def announce(self, rid: str, room: int, prompt_ids: list[int], record: RoomRecord) -> None:
        """The HTTP leg has come. `Paired` or `Failed` follows."""

    def ready(self, rid: str, first_page: int, pages: list[int], first: FirstToken | None) -> None:
        """Pages `first_page..` of the prompt (indices in the prompt) are computed, in pool pages `pages`.

        Chunks come in order and cover the prompt once; `first` is set on the last one.
        """


class Reader(Transfer, Protocol):
    """Decode's side."""

    def open(
        self,
        rid: str,
        room: int,
        bootstrap: str,
        prompt_ids: list[int],
        prefix_tokens: int,
        record: RoomRecord,
    ) -> None:
        """Offer the room to the prefill behind `bootstrap` (`host:port`, one of `config.peers`).

        `prefix_tokens` (a multiple of the page size) are cached here at this moment; `grant` decides.
        """

    def grant(self, rid: str, pages: list[int], prefix_tokens: int | None = None) -> None:
        """Give the pool pages of the whole prompt, cached prefix included, in order.

        The first `prefix_tokens` (a multiple of the page size) are cached here and will not be read; None: as many as
        `open` said.
        """

    def refuse(self, room: int, bootstrap: str, detail: str) -> None:
        """Tell prefill that this room will not be offered (queue full, draining), so that its leg fails at once."""

    def sum_pages(self, rid: str, pages: list[int]) -> None:
        """Have every rank sum its heads of these pages of the pool, as they are now.

        A `Summed` of each follows; those of one rank come in the order of asking.
        """
