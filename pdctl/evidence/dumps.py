"""Stack dumps -> records: py-spy text and JSON, gdb and cuda-gdb text."""

from __future__ import annotations

import re

import msgspec

from pdctl.evidence.records import Frame, Place, Problem, ProcessStack, Thread

_PROCESS = re.compile(r"Process (?:PID: )?(\d+)(?:[:\s]+\(?(.*?)\)?)?\s*$")
_PYSPY_THREAD = re.compile(r'Thread (?:0x[0-9a-fA-F]+|\d+) \(([\w+ ]+)\)(?:: "(.*)")?')
_GDB_THREAD = re.compile(r'Thread \d+ \(.*?LWP \d+\)?(?: "(.*?)")?\)?:')
_PYSPY_FRAME = re.compile(r"\s+(\S.*?) \(([^()]*)\)\s*$")
_GDB_FRAME = re.compile(r"#\d+\s+(?:0x[0-9a-fA-F]+ in )?(.+?)(?: \(.*)?$")


def parse_dump(data: bytes, file: str) -> tuple[ProcessStack, ...]:
    """Return the processes of a dump in text form; text that is no dump gives none."""
    processes: list[tuple[int, str, int, list[Thread]]] = []
    name, is_active, frames = "", False, []  # type: str, bool, list[Frame]
    in_thread = False

    def close() -> None:
        if in_thread and processes:
            processes[-1][3].append(Thread(name, is_active, tuple(frames)))

    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if match := _PROCESS.match(line):
            close()
            in_thread = False
            processes.append((int(match[1]), (match[2] or "").strip(), number, []))
        elif match := (_PYSPY_THREAD.match(line) or _GDB_THREAD.match(line)):
            close()
            is_pyspy = match.re is _PYSPY_THREAD
            in_thread, frames = True, []
            is_active = "idle" not in match[1] if is_pyspy else False
            name = (match[2] if is_pyspy else match[1]) or ""
            if not processes:
                processes.append((0, "", number, []))
        elif in_thread and (frame := _frame(line)):
            frames.append(frame)
    close()
    return tuple(
        ProcessStack(pid, title, tuple(threads), Place(file, number)) for pid, title, number, threads in processes
    )


def _frame(line: str) -> Frame | None:
    if match := _PYSPY_FRAME.match(line):
        return _framed(match[1], match[2].rpartition(":")[0] or match[2])
    if line.startswith("#") and (match := _GDB_FRAME.match(line)):
        return Frame(_short(match[1].partition("(")[0].strip()))
    return None


def _framed(function: str, file: str) -> Frame:
    """Make a frame; py-spy 0.4 writes functions of Python 3.11 and later with their class, older ones without."""
    return Frame(function.rpartition(".")[2] if file.endswith(".py") else _short(function), file)


def _short(function: str) -> str:
    """Return the last part of a qualified name, without template arguments."""
    return re.sub(r"<.*>", "", function.removesuffix("()")).rpartition("::")[2].partition("@")[0].strip()


def parse_dump_json(data: bytes, file: str) -> tuple[tuple[ProcessStack, ...], tuple[Problem, ...]]:
    """Return the processes of `py-spy dump --json`: one list of threads, or one list a process."""
    try:
        threads = msgspec.json.decode(data, type=list[dict[str, object]])
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        return (), (Problem(Place(file), f"is no py-spy dump: {error}"),)
    grouped: dict[tuple[int, str], list[Thread]] = {}
    for item in threads:
        info = item.get("process_info")
        title = str(info.get("command_line", "")) if isinstance(info, dict) else str(item.get("title", ""))
        pid = item.get("pid")
        key = (pid if isinstance(pid, int) else 0, title)
        grouped.setdefault(key, []).append(_json_thread(item))
    return tuple(ProcessStack(pid, title, tuple(kept), Place(file)) for (pid, title), kept in grouped.items()), ()


def _json_thread(item: dict[str, object]) -> Thread:
    frames = item.get("frames")
    kept = [
        _framed(str(frame.get("name", "")), str(frame.get("filename", "")))
        for frame in (frames if isinstance(frames, list) else [])
        if isinstance(frame, dict)
    ]
    return Thread(str(item.get("thread_name") or ""), bool(item.get("active")), tuple(kept))
