"""The files of an incident directory -> the same files without prompts, completions, names, addresses, credentials."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping

import msgspec

from pdctl.evidence import positive_list, toml_text
from pdctl.evidence.credentials import Credentials
from pdctl.evidence.folder import Files
from pdctl.evidence.free_text import without_content
from pdctl.evidence.known_names import is_generic, known_names
from pdctl.evidence.loglines import without_colours
from pdctl.evidence.manifest import Conclusion
from pdctl.evidence.pseudonyms import Pseudonyms

NEVER_SHARED = ("notes.md", "truth.toml", "manifest.json", "redaction.json", "flight.bin")
"""Free text, answers, what is written anew, and binary records that no rule can look into."""
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_PATH = re.compile(r"(?:(?<=file://)|(?<![\w:/.<]))(/(?:[\w.+@%~-]+/)+[\w.+@%~-]*)")
_PUBLIC_PATHS = ("/usr/", "/lib/", "/lib64/", "/proc/", "/sys/", "/dev/", "/v1/", "/opt/nvidia/", "/health/", "/rooms/")
_PACKAGES = re.compile(
    r"^.*?/((?:site-packages|dist-packages|sglang|vllm|engine|pdctl|dynamo|nixl|lib/python3\.\d+)/.*)$"
)


class Redaction:
    """Redacts one incident. `mapping` afterwards holds every pseudonym; `counts` what was taken out."""

    def __init__(self, files: Files, key: bytes, secrets: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> None:
        """`secrets` and `names` are values that the caller knows of this host: keys, its name, its user."""
        self._files = files
        self._credentials = Credentials(secrets)
        self._pseudonyms = Pseudonyms(key, *known_names(files, names))
        self.counts: Counter[str] = Counter()

    @property
    def mapping(self) -> Mapping[str, str]:
        """Return original -> pseudonym."""
        return self._pseudonyms.mapping

    def files(self) -> dict[str, bytes]:
        """Return every file that may be shared, under its pseudonymous name."""
        made = {}
        for name, data in sorted(self._files.items()):
            folder, _, file = name.rpartition("/")
            if file in NEVER_SHARED or name in NEVER_SHARED:
                self.counts["files left out"] += 1
                continue
            shown = f"{self._pseudonyms.mapping.get(folder, folder)}/{file}" if folder else file
            made[shown] = self._one(file, data)
        return made

    def conclusion(self, told: Conclusion) -> Conclusion:
        """Return what was concluded, with the pseudonyms of the instances that it names."""
        subjects = tuple(self._name(name, "instance") for name in told.subjects)
        return msgspec.structs.replace(told, subjects=subjects, symptoms=tuple(map(self._symptom, told.symptoms)))

    def _symptom(self, symptom: str) -> str:
        kind, _, where = symptom.partition(" ")
        instance, _, unit = where.partition(" ")
        return f"{kind} {self._name(instance, 'instance')} {self.text(unit)}"

    def _one(self, file: str, data: bytes) -> bytes:
        data = self._credentials.without(data)
        if file.endswith(".toml"):
            return self._toml(data)
        if file.endswith((".json", ".jsonl")):
            return (
                b"\n".join(self._json(line) for line in data.splitlines()) if file.endswith("l") else self._json(data)
            )
        text = data.decode("utf-8", "replace")
        if file.startswith("metrics"):
            return "".join(self._sample(line) for line in text.splitlines(keepends=True)).encode()
        # A colour's last letter before a word hides the word from every rule, and says nothing.
        lines = without_content(iter(without_colours(text).split("\n")), self.text)
        return self._credentials.without("\n".join(lines).encode())

    def text(self, text: str) -> str:
        """Return a text with pseudonyms for names, addresses and private paths."""
        text = without_colours(text)
        return self._pseudonyms.text(_PATH.sub(self._path, text) if "/" in text else text)

    def _toml(self, data: bytes) -> bytes:
        try:
            document = tomllib.loads(data.decode("utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
            self.counts["unreadable files emptied"] += 1
            return b"# was not valid TOML, left out\n"
        whole = self._table(document)
        tables = {key: value for key, value in whole.items() if isinstance(value, list) and _is_tables(value)}
        head = {key: value for key, value in whole.items() if key not in tables}
        return toml_text.document(head, tables)

    def _json(self, data: bytes) -> bytes:
        try:
            return msgspec.json.encode(self._value(msgspec.json.decode(data)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.counts["unreadable files emptied"] += 1
            return b"null"

    def _table(self, table: Mapping[str, object]) -> dict[str, object]:
        made: dict[str, object] = {}
        for key, value in table.items():
            if key == "body" and isinstance(value, str):
                made[key] = self._body(value)
            elif key in ("env", "environment") and isinstance(value, dict):
                made[key] = {
                    k: self._if(positive_list.ENVIRONMENT.fullmatch(k) is not None, v) for k, v in value.items()
                }
            elif key in positive_list.FREE_TABLES and isinstance(value, dict):
                made[key] = {k: v for k, v in value.items() if not isinstance(v, (dict, list))}
            elif key in positive_list.NAMES and isinstance(value, str):
                made[key] = self._name(value, positive_list.NAMES[key])
            elif key in ("host", "hosts"):
                made[key] = [self._host(item) for item in value] if isinstance(value, list) else self._host(value)
            elif key in positive_list.ENDPOINTS and isinstance(value, str):
                made[key] = self._pseudonyms.endpoint(value) or self._string(value)
            elif positive_list.CONTENT.fullmatch(key):
                self.counts["texts"] += 1
                made[key] = f"<{len(value)} long>" if isinstance(value, (str, list, dict)) else ""
            else:
                made[self._key(key)] = self._if(positive_list.is_listed(key), value)
        return made

    def _key(self, key: str) -> str:
        """Return a key; one that is a name or an address itself (a table by peer) is replaced like a value."""
        return key if positive_list.is_own_word(key) else self.text(key)

    def _name(self, value: str, kind: str) -> str:
        shown = self.text(value)
        return shown if shown != value or is_generic(value) else self._pseudonyms.of(value, kind)

    def _host(self, value: object) -> object:
        """Return a host as deployment files write it; also a name that is too short to be searched for."""
        if not isinstance(value, str) or not value.startswith("ssh:"):
            return self._value(value)
        user, at, host = value.removeprefix("ssh:").rpartition("@")
        return f"ssh:{self._name(user, 'user')}{at}{self._name(host, 'host')}"

    def _if(self, is_listed: bool, value: object) -> object:
        is_harmless = isinstance(value, (dict, bool)) or _is_tables(value) or value in ("", [], None)
        if is_listed or is_harmless or value in positive_list.STATES:
            return self._value(value)
        self.counts["values of unknown keys"] += 1
        return ""

    def _value(self, value: object) -> object:
        if isinstance(value, dict):
            return self._table(value)
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, str):
            return self._string(value)
        return value

    def _string(self, text: str) -> str:
        return "\n".join(without_content(iter(text.split("\n")), self.text))

    def _body(self, body: str) -> str:
        """Return an HTTP body: JSON by the positive list, else as a log line."""
        try:
            return msgspec.json.encode(self._value(msgspec.json.decode(body))).decode()
        except (msgspec.DecodeError, RecursionError):
            return self._string(body)

    def _sample(self, line: str) -> str:
        """Return a line of a scrape; labels whose values are not words of the engine get pseudonyms."""
        if line.startswith("#"):
            return line if line.startswith(("# HELP", "# TYPE", "# EOF")) else "#\n"
        return _LABEL.sub(self._label, line)

    def _label(self, match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name not in positive_list.LABELS and not value.isdigit():
            value = self._name(value, positive_list.NAMES.get(name, name.replace("_", "-"))) if value else value
        return f'{name}="{value}"'

    def _path(self, match: re.Match[str]) -> str:
        path = match[1]
        if path.startswith(_PUBLIC_PATHS):
            return path
        if package := _PACKAGES.match(path):
            return f"/x/{package[1]}"
        return "/" + self._pseudonyms.of(path, "path")


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
