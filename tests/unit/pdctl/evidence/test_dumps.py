"""Stack dumps -> processes, threads, frames."""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdctl.evidence.dumps import parse_dump, parse_dump_json

_PYSPY = b"""Process 71: sglang::scheduler_DP0_TP1
Python v3.12.11 (/usr/bin/python3.12)

Thread 71 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3025)
    poll_and_all_reduce (sglang/srt/disaggregation/utils.py:114)
Thread 99 (idle): "Thread-2 (bootstrap_thread)"
    recv_multipart (zmq/sugar/socket.py:801)
Process 72: sglang::scheduler_DP1_TP2
Thread 72 (idle): "MainThread"
    futex_wait (libc.so.6)
"""
_GDB = b"""Process PID: 5100 (mpi rank 0)
Thread 1 (Thread 0x7ff3 (LWP 5100) "python3"):
#0  0x00007ffc in __futex_wait () from /lib/libc.so.6
#1  0x00007f07 in tensorrt_llm::CacheTransceiver::checkGenTransferStatus(std::optional<int> const&) () from x.so
"""


def test_processes_threads_and_frames() -> None:
    """A py-spy dump of two processes keeps who is where, innermost frame first."""
    first, second = parse_dump(_PYSPY, "p/stacks.txt")
    assert (first.pid, first.title) == (71, "sglang::scheduler_DP0_TP1")
    assert [frame.function for frame in first.threads[0].frames] == ["all_reduce", "poll_and_all_reduce"]
    assert first.threads[0].is_active
    assert first.threads[1].name == "Thread-2 (bootstrap_thread)"
    assert second.place.line == 9


def test_gdb_frames_lose_their_namespaces() -> None:
    """`a::b::c(args)` is the function `c`."""
    [process] = parse_dump(_GDB, "p/native.txt")
    assert process.threads[0].frames[1].function == "checkGenTransferStatus"


def test_json_of_py_spy() -> None:
    """The JSON form gives the same records."""
    data = b'[{"pid": 7, "thread_name": "MainThread", "active": true, "frames": [{"name": "f", "filename": "a.py", "line": 3}]}]'
    [process], problems = parse_dump_json(data, "p/stacks.json")
    assert problems == ()
    assert process.threads[0].has("f")


def test_broken_json_is_a_problem() -> None:
    """Half a document is said to be none."""
    made, [problem] = parse_dump_json(b'[{"pid": 7', "p/stacks.json")
    assert made == ()
    assert "py-spy" in problem.message


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    """No dump is too strange."""
    parse_dump(data, "p/stacks.txt")
    parse_dump_json(data, "p/stacks.json")


def test_a_python_function_is_called_the_same_by_every_py_spy() -> None:
    """0.4 writes the class before it, and where a function was defined; the native name after a dot is none."""
    dump = (
        "Process 7: python -m engine.scheduler\n\n"
        'Thread 7 (idle): "steps"\n'
        "    forward.cold (libtorch_cpu.so)\n"
        "    ProcessRanks.all_reduce (engine/parallel/group.py:68)\n"
        "    context_decorator.<locals>.decorate_context (torch/utils/_contextlib.py:124)\n"
        "    main (engine/__main__.py:45)\n"
    )
    [process] = parse_dump(dump.encode(), "p/stacks.txt")
    functions = [frame.function for frame in process.threads[0].frames]
    assert functions == ["forward.cold", "all_reduce", "decorate_context", "main"]
