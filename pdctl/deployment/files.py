"""`pd.toml` <-> `Deployment`: the keys of an incident directory's `topology.toml`, plus how to start."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from pdctl.deployment.model import Deployment, Instance
from pdctl.errors import PdctlError, UsageError
from pdctl.evidence.urls import is_base_url
from pdctl.hosts.host import LOCAL
from pdctl.hosts.remote import argv_of

SCHEMA = "pdctl.deployment/1"
DIALECTS = ("pdctl", "sglang", "vllm", "dynamo", "smg", "vllm-router", "llm-d", "trtllm")
MANAGERS = ("shim", "systemd", "none")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names become file names and shell words, hence the narrow alphabet."""


class _InstanceTable(Instance, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An `[[instance]]` as written: a misspelt key is an error, not a silent default."""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    model: str
    instance: tuple[_InstanceTable, ...]
    schema: str = SCHEMA


def load(path: Path) -> Deployment:
    """Read a deployment file; relative paths in it are relative to its folder.

    Raises UsageError naming file, line, key and value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the deployment file {path}: {error}",
            "name another with --file, or write one with `pdctl attach URL...`",
        ) from error
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not complete TOML: {error}", "repair or finish that line") from error
    try:
        file = msgspec.convert(tables, _File)
    except msgspec.ValidationError as error:
        raise _explained(path, text, tables, str(error)) from error
    _check(path, text, file)
    instances = tuple(_at_home(instance, path.resolve().parent) for instance in file.instance)
    return Deployment(name=file.name, model=file.model, instances=instances)


def save(deployment: Deployment, path: Path) -> None:
    """Write a deployment file; the old one stays until the new one is complete."""
    write_atomically(path, render(deployment))


def render(deployment: Deployment) -> str:
    """Return the text of a deployment file; what is unknown or default is left out."""
    lines = [f"{key} = {_toml(value)}" for key, value in _head(deployment).items()]
    for instance in deployment.instances:
        lines += ["", "[[instance]]"]
        lines += [f"{key} = {_toml(value)}" for key, value in _set_fields(instance).items()]
    return "\n".join(lines) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file in one step. Raises PdctlError where the folder cannot be written or is full."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise PdctlError(
            f"cannot write {path}: {error.strerror}", "make room there, or make the folder writable"
        ) from error


def _head(deployment: Deployment) -> dict[str, str]:
    return {"schema": SCHEMA, "name": deployment.name, "model": deployment.model}


def _set_fields(instance: Instance) -> dict[str, Any]:
    defaults = {field.name: field.default for field in msgspec.structs.fields(Instance)}
    fields = msgspec.structs.asdict(instance)
    return {key: value for key, value in fields.items() if value and value != defaults[key]}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, int):
        return str(value)
    # JSON strings are TOML basic strings, but for DEL, which TOML wants escaped.
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007f")


def _explained(path: Path, text: str, tables: dict[str, Any], complaint: str) -> UsageError:
    """Turn msgspec's complaint with its JSON path into one with a line number."""
    what, _, where = complaint.partition(" - at `")
    index = re.search(r"\[(\d+)\]", where)
    block = int(index[1]) if index else None
    unknown = re.search(r"unknown field `(.+?)`", what)
    missing = re.search(r"missing required field `(.+?)`", what)
    if missing:
        place = f"[[instance]] number {block + 1}" if block is not None else "the file"
        return UsageError(f"{path}:{_line(text, block, None)}: {place} has no `{missing[1]}`", "add that key")
    key_path = re.search(r"\]\.(\w+)", where) or re.search(r"\$\.(\w+)", where)
    key = unknown[1] if unknown else key_path[1] if key_path else ""
    line = _line(text, block, key)
    if unknown:
        known = _InstanceTable if block is not None else _File
        names = ", ".join(field.name for field in msgspec.structs.fields(known))
        return UsageError(f"{path}:{line}: unknown key `{key}`", f"known here: {names}")
    table = tables if block is None else tables["instance"][block]
    value = table.get(key) if isinstance(table, dict) else table
    return UsageError(f"{path}:{line}: {key or 'instance'} = {value!r} is wrong: {what}", "correct that value")


def _line(text: str, block: int | None, key: str | None) -> int:
    """Return the 1-based line of a key in the nth [[instance]] block, else of the block, else 1."""
    current, fallback = -1, 1
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*instance\s*\]\]", line):
            current += 1
            fallback = number if current == block else fallback
        inside = current == (block if block is not None else -1)
        if inside and key and re.match(rf"""\s*\[{{0,2}}\s*["']?{re.escape(key)}["']?\s*[=.\]]""", line):
            return number
    return fallback


def _check(path: Path, text: str, file: _File) -> None:
    """Refuse values whose type is right and whose meaning is not."""
    if file.schema != SCHEMA:
        raise UsageError(f"{path}: schema = {file.schema!r} is not known", f"this pdctl reads {SCHEMA!r}")
    if not NAME.fullmatch(file.name):
        raise _wrong(path, text, None, "name", file.name, "letters, digits, '.', '_', '-', at most 64")
    if not file.instance:
        raise UsageError(f"{path} has no [[instance]]", "add one table for each engine and router")
    names: set[str] = set()
    urls: set[str] = set()
    for index, instance in enumerate(file.instance):
        for key, value, rule, is_right in _rules(instance, names, urls):
            if not is_right:
                raise _wrong(path, text, index, key, value, rule)
        names.add(instance.name)
        urls.add(instance.url.rstrip("/"))


def _rules(instance: Instance, names: set[str], urls: set[str]) -> list[tuple[str, object, str, bool]]:
    """Return (key, value, what it must be, whether it is) of one instance."""
    port = instance.bootstrap_port
    return [
        ("name", instance.name, "letters, digits, '.', '_', '-'", bool(NAME.fullmatch(instance.name))),
        ("name", instance.name, "used once", instance.name not in names),
        ("dialect", instance.dialect, "one of " + ", ".join(DIALECTS), instance.dialect in DIALECTS),
        ("manager", instance.manager, "one of " + ", ".join(MANAGERS), instance.manager in MANAGERS),
        ("host", instance.host, "local, ssh:NAME or exec:COMMAND", _is_host(instance.host)),
        (
            "manager",
            instance.manager,
            "systemd or none on another host: a shim runs on this machine only",
            instance.manager != "shim" or instance.host == LOCAL,
        ),
        ("url", instance.url, "http://HOST:PORT or https://HOST:PORT", is_base_url(instance.url)),
        ("url", instance.url, "used once", instance.url.rstrip("/") not in urls),
        ("tp", instance.tp, "at least 1", instance.tp is None or instance.tp >= 1),
        ("bootstrap_port", port, "between 1 and 65535", port is None or 0 < port < 65536),
        (
            "unit",
            instance.unit,
            "set where manager is systemd",
            instance.manager != "systemd" or bool(instance.unit),
        ),
    ]


def _is_host(name: str) -> bool:
    try:
        return name == LOCAL or bool(argv_of(name))
    except UsageError:
        return False


def _wrong(path: Path, text: str, block: int | None, key: str, value: object, rule: str) -> UsageError:
    return UsageError(f"{path}:{_line(text, block, key)}: {key} = {value!r} must be {rule}")


def _at_home(table: _InstanceTable, folder: Path) -> Instance:
    """Make an Instance whose paths do not depend on where pdctl is called."""
    fields = msgspec.structs.asdict(table)
    fields["url"] = table.url.rstrip("/")
    if table.unit and not table.unit.endswith(".service"):
        fields["unit"] = f"{table.unit}.service"  # as systemctl reads it, and as systemd calls it
    for key in ("api_key_file", "ca_file"):
        if fields[key] is not None:
            fields[key] = str(folder / Path(fields[key]).expanduser())
    if table.start and "/" in table.start[0]:
        fields["start"] = (str(folder / Path(table.start[0]).expanduser()), *table.start[1:])
    return Instance(**fields)
