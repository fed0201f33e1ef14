"""Look things up in what endpoints answered; pure functions over bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

Answers = Mapping[str, bytes]
"""Path -> body of the answer, whatever its status; a path that did not answer is absent."""

Scalar = str | int | float | bool

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


class Field(msgspec.Struct, frozen=True):
    """A value inside a JSON answer: the path of the endpoint, then keys and indices."""

    path: str
    pointer: tuple[str | int, ...]

    def find(self, answers: Answers) -> Scalar | None:
        """Return the scalar there, or None."""
        value = json_value(answers.get(self.path, b""), self.pointer)
        return value if isinstance(value, (str, int, float, bool)) else None


class Label(msgspec.Struct, frozen=True):
    """A label of the first sample of a series that has it; `nonzero` passes over samples of value 0."""

    path: str
    series: str
    label: str
    nonzero: bool = False

    def find(self, answers: Answers) -> Scalar | None:
        """Return the label's value, or None."""
        for sample in samples(answers.get(self.path, b""), self.series):
            if self.label in sample.labels and (sample.value or not self.nonzero):
                return sample.labels[self.label]
        return None


class Sample(msgspec.Struct, frozen=True):
    """One line of a Prometheus exposition."""

    name: str
    labels: dict[str, str]
    value: float


def json_value(body: bytes, pointer: tuple[str | int, ...]) -> object:
    """Return what `pointer` leads to in a JSON text; None where the text or the way is not there."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return follow(value, pointer)


def follow(value: object, pointer: tuple[str | int, ...]) -> object:
    """Return what keys and indices lead to from a decoded value, or None."""
    for key in pointer:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def has_series(body: bytes, prefix: str) -> bool:
    """Return whether a sample's name starts with `prefix`."""
    return any(line.startswith(prefix) for line in _lines(body))


def samples(body: bytes, series: str) -> Iterator[Sample]:
    """Yield the samples of exactly that series; lines that cannot be read are passed over."""
    for line in _lines(body):
        if not line.startswith(series):
            continue
        match = _SAMPLE.match(line)
        if match is None or match[1] != series:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), value)


def _lines(body: bytes) -> Iterator[str]:
    for line in body.decode("utf-8", "replace").splitlines():
        if line and not line.startswith("#"):
            yield line
