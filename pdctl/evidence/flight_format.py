"""The flight recorder's file: a ring of fixed records in a memory-mapped file, one file a rank.

The file can be read at any time without the process's help: while it hangs, while it is stopped, after SIGKILL.
Little-endian. One header of 4,096 bytes, then `slots` records of 128 bytes; record number n (from 0) lies in slot
n modulo slots. This module is standard library only; engine and pdctl each carry a copy, equal to the byte.

| header offset | type | field |
|---|---|---|
| 0 | 8 bytes | magic `PDFLIGHT` |
| 8 | u32 | version, 1 |
| 12 | u32 | bytes of a record, 128 |
| 16 | u32 | slots |
| 20 | u32 | pid |
| 24 | f64 | Unix time at which the file was made |
| 32 | u32 | rank |
| 36 | 64 bytes | instance, UTF-8, padded with zeros |
| 100 | 32 bytes | incarnation, ASCII |

| record offset | type | field |
|---|---|---|
| 0 | u64 | record number + 1; 0: never written |
| 8 | f64 | Unix time |
| 16 | u16 | kind, see `KINDS` |
| 18 | u16 | bytes of text |
| 20 | u32 | amount (step: sequences) |
| 24 | i64 | room number, or number of the step |
| 32 | i64 | value (end of a step: its microseconds) |
| 40 | 84 bytes | text, UTF-8, cut |
| 124 | u32 | crc32 of the 124 bytes before; another one: the writer was cut off in this record |
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

MAGIC = b"PDFLIGHT"
VERSION = 1
HEADER_BYTES = 4096
RECORD_BYTES = 128
TEXT_BYTES = 84
HEADER = struct.Struct("<8sIIIIdI64s32s")
RECORD = struct.Struct("<QdHHIqq84s")
CRC = struct.Struct("<I")
KINDS = {1: "start", 2: "step_begin", 3: "step_end", 4: "room", 5: "note"}
"""`room` has the text `SIDE STATE>STATE EVENT REQUEST`."""


class NotAFlightFile(ValueError):
    """The bytes are no flight recorder's file, or one of another version."""


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """One thing that happened."""

    number: int
    at: float
    """Unix time."""
    kind: str
    amount: int
    subject: int
    """Room number, or number of the step."""
    value: int
    text: str


@dataclass(frozen=True, slots=True)
class Flight:
    """A file's contents; `records` oldest first, `torn` records left out."""

    instance: str
    incarnation: str
    rank: int
    pid: int
    started_at: float
    torn: int
    records: list[FlightRecord]


def pack_header(slots: int, pid: int, started_at: float, rank: int, instance: str, incarnation: str) -> bytes:
    """Return the header."""
    name = cut(instance, 64)
    packed = HEADER.pack(
        MAGIC, VERSION, RECORD_BYTES, slots, pid, started_at, rank, name, incarnation.encode("ascii", "replace")[:32]
    )
    return packed.ljust(HEADER_BYTES, b"\0")


def pack_record(number: int, at: float, kind: int, amount: int, subject: int, value: int, text: str) -> bytes:
    """Return record `number` (from 0)."""
    data = cut(text, TEXT_BYTES)
    body = RECORD.pack(number + 1, at, kind, len(data), amount, subject, value, data)
    return body + CRC.pack(zlib.crc32(body))


def cut(text: str, limit: int) -> bytes:
    """Return the text as UTF-8 of at most `limit` bytes, no character cut in two."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore").encode()


def read_flight(data: bytes) -> Flight:
    """Return what a file holds. Raises NotAFlightFile; damaged records are counted, never an error."""
    if len(data) < HEADER_BYTES or data[: len(MAGIC)] != MAGIC:
        raise NotAFlightFile("no flight recorder file: the magic PDFLIGHT is missing")
    _, version, size, slots, pid, started_at, rank, instance, incarnation = HEADER.unpack_from(data)
    if version != VERSION or size != RECORD_BYTES:
        raise NotAFlightFile(f"flight recorder file of version {version} with records of {size} bytes; 1 and 128 known")
    records, torn = [], 0
    for slot in range(min(slots, (len(data) - HEADER_BYTES) // RECORD_BYTES)):
        start = HEADER_BYTES + slot * RECORD_BYTES
        record = _read_record(data[start : start + RECORD_BYTES])
        if record is None:
            torn += any(data[start : start + RECORD_BYTES])
        else:
            records.append(record)
    records.sort(key=lambda record: record.number)
    name = instance.rstrip(b"\0").decode("utf-8", "replace")
    return Flight(name, incarnation.rstrip(b"\0").decode("ascii", "replace"), rank, pid, started_at, torn, records)


def _read_record(data: bytes) -> FlightRecord | None:
    body, crc = data[: RECORD.size], data[RECORD.size :]
    number, at, kind, length, amount, subject, value, text = RECORD.unpack(body)
    if number == 0 or CRC.pack(zlib.crc32(body)) != crc:
        return None
    words = text[:length].decode("utf-8", "replace")
    return FlightRecord(number - 1, at, KINDS.get(kind, str(kind)), amount, subject, value, words)
