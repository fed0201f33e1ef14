"""Where the ranks of one engine stand: a folded trie of their main threads."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.evidence.records import Frame, Place, ProcessStack, Thread

_LIBRARY = (
    "distributed_c10d.py",
    "c10d_logger.py",
    "parallel_state.py",
    "threading.py",
    "_contextlib.py",
    "process.py",
    "spawn.py",
    "runpy",
    "socket.py",
    "streams.py",
    "poll.py",
    "<string>",
)
_WAITS_FOR_INPUT = (
    "recv_requests",
    "ingest_requests",
    "recv_pyobj",
    "_pull_raw_reqs",
    "get_input",
    "_fetch_new_requests",
    "process_input_queue",
    "_process_input_queue",
    "dequeue",
    "receive",
)
"""Rank 0 reads its socket while the others wait for its broadcast: that is how a healthy engine idles."""
_LOOPS = (
    "event_loop_normal",
    "event_loop_overlap",
    "event_loop_normal_disagg_prefill",
    "event_loop_overlap_disagg_prefill",
    "event_loop_normal_disagg_decode",
    "event_loop_overlap_disagg_decode",
    "event_loop_pp_disagg_prefill",
    "event_loop_pp_disagg_decode",
    "worker_busy_loop",
    "run_busy_loop",
    "_executor_loop",
    "_executor_loop_overlap",
)
_FORWARD = (
    "run_batch",
    "forward_batch_generation",
    "execute_model",
    "forward",
    "forward_extend",
    "forward_decode",
    "_forward_step",
    "replay",
    "model_forward",
    "forward_pass",
)
_COLLECTIVE = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "broadcast",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "barrier",
    "broadcast_object_list",
    "all_to_all_single",
    "recv",
    "send",
    "batch_isend_irecv",
    "allreduce",
    "monitored_barrier",
    "all_gather_object",
)
_BLOCKING_FILES = (
    "requests/",
    "urllib3/",
    "http/client.py",
    "httpx/",
    "httpcore/",
    "ssl.py",
    "boto",
    "grpc/_channel.py",
    "etcd",
)
_BLOCKING = (
    "getaddrinfo",
    "create_connection",
    "urlopen",
    "send_multipart",
    "recv_into",
    "readinto",
    "_ensure_prefill_info",
    "query_prefill_dp_ranks",
    "try_ensure_parallel_info",
    "fsync",
)
_LOCKS = (
    "acquire",
    "pthread_mutex_lock",
    "__lll_lock_wait",
    "lll_lock_wait",
    "sem_wait",
    "futex_wait_queue",
)
_HANDLE_WAITS = (
    "wait_for_transfer",
    "_wait_transfer",
    "transfer_sync",
    "get_transfer_status",
    "_await_handles",
    "check_xfer_state",
    "batch_transfer_sync",
    "checkGenTransferStatus",
    "check_gen_transfer_status",
    "checkContextTransferStatus",
    "check_context_transfer_status",
    "_check_disagg_ctx_cache_transfer_status",
    "_check_disagg_gen_cache_transfer_status",
)


class Split(StrEnum):
    """How the ranks of an engine stand to each other."""

    TOGETHER = "together"
    INPUT = "input"
    """Some read requests, the others wait for them."""
    CONTROL = "control"
    """They left each other in the scheduler: different collectives, some none."""
    FORWARD = "forward"
    """They left each other inside one forward pass."""


class RankStand(msgspec.Struct, frozen=True):
    """Ranks with the same path."""

    ranks: tuple[str, ...]
    path: tuple[str, ...]
    """Functions, outermost first."""
    thread: Thread
    place: Place


class Stand(msgspec.Struct, frozen=True):
    """One dump of one engine."""

    groups: tuple[RankStand, ...]
    split: Split

    @property
    def ranks(self) -> int:
        return sum(len(group.ranks) for group in self.groups)

    def text(self) -> str:
        """Return who stands where, biggest group first."""
        ordered = sorted(self.groups, key=lambda group: -len(group.ranks))
        return "; ".join(f"{_names(group.ranks)} in {telling(group)}" for group in ordered[:4])


def _names(ranks: tuple[str, ...]) -> str:
    return ", ".join(ranks) if len(ranks) <= 4 else f"{len(ranks)} ranks ({ranks[0]}..{ranks[-1]})"


def telling(group: RankStand) -> str:
    """Return the innermost own function and the library call it waits in."""
    own = next((frame.function for frame in group.thread.frames if not is_library(frame)), "?")
    inner = group.thread.frames[0].function if group.thread.frames else "?"
    return own if inner == own else f"{own} ({inner})"


def is_library(frame: Frame) -> bool:
    """Return whether the frame belongs to Python, torch or native code rather than to the engine."""
    file = frame.file
    name = file.rpartition("/")[2]
    return (
        not file
        or ".so" in file
        or (name in _LIBRARY and "sglang/" not in file and "vllm/" not in file)
        or frame.function == "wrapper"
    )


def schedulers(stacks: tuple[ProcessStack, ...]) -> tuple[ProcessStack, ...]:
    """Return the processes of a dump that are ranks: not the HTTP parent, not the detokenizer.

    Known by their titles, else by an event loop on their main thread, else all when all are called the same.
    """
    for word in ("scheduler", "Worker", "mpi rank"):
        named = tuple(process for process in stacks if word in process.title)
        if named:
            return named
    looping = tuple(process for process in stacks if process.main is not None and process.main.has(*_LOOPS))
    if looping:
        return looping
    return stacks if len({process.title for process in stacks}) <= 1 else ()


def stand_of(stacks: tuple[ProcessStack, ...]) -> Stand | None:
    """Return how the schedulers of a dump stand; None with fewer than one of them."""
    rows: list[tuple[str, tuple[str, ...], Thread, Place]] = []
    for index, process in enumerate(schedulers(stacks)):
        thread = process.main
        if thread is None or not thread.frames:
            continue
        path = tuple(frame.function for frame in reversed(thread.frames) if not is_library(frame))
        rows.append((rank_name(process, index), path, thread, process.place))
    if not rows:
        return None
    grouped: dict[tuple[str, ...], list[tuple[str, tuple[str, ...], Thread, Place]]] = {}
    for row in rows:
        grouped.setdefault(row[1], []).append(row)
    groups = tuple(
        RankStand(tuple(row[0] for row in same), path, same[0][2], same[0][3]) for path, same in grouped.items()
    )
    return Stand(groups, _split([group.path for group in groups]))


def rank_name(process: ProcessStack, index: int) -> str:
    """Return a short name: `TP3`, `DP5 TP5`, or the number in the dump."""
    tail = process.title.rpartition("_")
    parts = [part for part in process.title.split("_") if part[:2] in ("TP", "DP", "PP", "EP") and part[2:].isdigit()]
    if parts:
        return " ".join(part for part in parts if not part.startswith("EP")) or parts[0]
    words = process.title.split()
    if "rank" in words:
        return f"rank {words[-1].rstrip(')')}"
    return tail[2] if tail[2].isdigit() else f"rank {index}"


def _split(paths: list[tuple[str, ...]]) -> Split:
    if len(paths) == 1:
        return Split.TOGETHER
    common = _common(paths)
    rest = [path[len(common) :] for path in paths]
    if any(name in common for name in _WAITS_FOR_INPUT):
        return Split.INPUT
    if all(not tail or any(name in tail for name in _WAITS_FOR_INPUT) for tail in rest):
        return Split.INPUT
    if any(name in common for name in _FORWARD):
        return Split.FORWARD
    if "worker_busy_loop" in common:
        # vLLM's workers only do what they are told: who is still in a pass, and who already waits for the next.
        return Split.FORWARD
    return Split.CONTROL


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    common: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return tuple(common)


def is_in_collective(thread: Thread) -> bool:
    """Return whether a thread waits in a collective."""
    return thread.has(*_COLLECTIVE)


def is_in_forward(thread: Thread) -> bool:
    """Return whether a thread is inside a forward pass."""
    return thread.has(*_FORWARD)


def waits_for_input(thread: Thread) -> bool:
    """Return whether a thread reads requests, or waits for their broadcast."""
    return thread.has(*_WAITS_FOR_INPUT)


def blocking_call(thread: Thread) -> str | None:
    """Return the blocking network or file call a thread sits in."""
    for frame in thread.frames[:6]:
        if frame.function in _BLOCKING or any(part in frame.file for part in _BLOCKING_FILES):
            return frame.function
    return None


def lock_wait(thread: Thread) -> str | None:
    """Return the lock a thread waits for, by the engine function that wants it."""
    if any(frame.function in _LOCKS for frame in thread.frames[:4]):
        return next((frame.function for frame in thread.frames if not is_library(frame)), "a lock")
    return None


def handle_wait(thread: Thread) -> str | None:
    """Return the function in which a thread waits for a transfer to end."""
    return next((frame.function for frame in thread.frames if frame.function in _HANDLE_WAITS), None)
