"""The kernel's messages: those that matter, and what is said when they cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pdctl.collect import kernel
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.records import Status, Taken

OOM = b"[Fri Jun 19 03:11:27 2026] Out of memory: Killed process 4711 (python) total-vm:9kB"
XID = b"[Fri Jun 19 03:11:28 2026] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def taken() -> Taken:
    async def once() -> Taken:
        fetcher = Fetcher()
        return await kernel.take(Context(fetcher=fetcher, deadline=Deadline(20)))

    return asyncio.run(once())


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_only_telling_lines_are_kept() -> None:
    """Memory, devices and faults; the rest of the ring is noise."""
    assert kernel.telling_lines(b"\n".join([b"[x] usb 1-1: new device", OOM, XID])) == OOM + b"\n" + XID + b"\n"
    assert kernel.killed_for_memory(OOM) == {4711}


def test_of_too_many_lines_the_last_are_kept() -> None:
    """A storm of faults fills no disk, and no line is cut."""
    kept = kernel.telling_lines((XID + b"\n") * 10_000 + OOM)
    assert len(kept) <= kernel.KEPT_BYTES
    assert kept.endswith(OOM + b"\n")
    assert kept.startswith(XID)


def test_the_journal_is_read_where_dmesg_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user may often read the kernel's messages in the journal."""
    install(tmp_path, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    install(tmp_path, "journalctl", f"echo '{OOM.decode()}'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert taken().content == OOM + b"\n"


def test_a_denial_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither readable the record is a denial with a remedy."""
    for name in ("dmesg", "journalctl"):
        install(tmp_path, name, "echo 'Operation not permitted' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    item = taken()
    assert item.status is Status.DENIED
    assert "as root" in (item.error or "")


def test_a_kernel_log_that_hangs_costs_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it is a child like any other."""
    for name in ("dmesg", "journalctl"):
        install(tmp_path, name, "sleep 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(kernel, "KERNEL_S", 0.3)
    assert taken().status is Status.TIMEOUT
