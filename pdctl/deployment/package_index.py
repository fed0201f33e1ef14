"""Find a file of a package on the index that this user's pip is set up for (PEP 503 HTML, PEP 691 JSON)."""

from __future__ import annotations

import ast
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urldefrag, urljoin, urlsplit, urlunsplit

import msgspec

from pdctl.errors import PdctlError

if TYPE_CHECKING:
    import httpx

ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
NO_INDEX_HINT = "set PIP_INDEX_URL to a package index, or download the model elsewhere: pdctl up --model PATH"


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Where packages come from, and which authorities its TLS certificate may have (None: the usual)."""

    urls: tuple[str, ...]
    ca_file: str | None


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A downloadable file."""

    name: str
    url: str
    sha256: str | None


class _JsonFile(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}


class _JsonPage(msgspec.Struct):
    files: list[_JsonFile]


def configured_index(environ: Mapping[str, str] = os.environ) -> IndexConfig:
    """Return what pip would use: its environment variables, else its configuration, else its own default.

    Asks pip as a program (0.3 s), and only for what the environment does not say.
    """
    settings: dict[str, str] = {}
    if "PIP_INDEX_URL" not in environ:
        settings = _pip_settings()
    url = environ.get("PIP_INDEX_URL") or settings.get("index-url") or _pip_default()
    more = environ.get("PIP_EXTRA_INDEX_URL") or settings.get("extra-index-url") or ""
    urls = tuple(u for u in (url, *more.split()) if u and urlsplit(u).scheme in ("http", "https"))
    if not urls:
        raise PdctlError("pip is set up for no package index that is reached by HTTP", NO_INDEX_HINT)
    return IndexConfig(urls, environ.get("PIP_CERT") or settings.get("cert"))


def open_client(config: IndexConfig) -> httpx.Client:
    """Return an HTTP client for the index; proxies of the environment count here, unlike for engines."""
    import httpx

    verify = ssl.create_default_context(cafile=config.ca_file) if config.ca_file else True
    return httpx.Client(verify=verify, follow_redirects=True, timeout=httpx.Timeout(30.0, connect=10.0))


def find_file(client: httpx.Client, config: IndexConfig, package: str, filename: str) -> IndexFile:
    """Look a file up on each configured index in turn. Raises PdctlError saying what each answered."""
    import httpx

    answers = []
    for index in config.urls:
        page = f"{index.rstrip('/')}/{package}/"
        try:
            response = client.get(page, headers={"Accept": ACCEPT})
        except httpx.HTTPError as error:
            answers.append(f"{without_password(index)}: {str(error) or type(error).__name__}")
            continue
        files = _files_on(response) if response.status_code == 200 else ()
        for file in files:
            if file.name == filename:
                return file
        reason = f"has no {filename}" if response.status_code == 200 else f"status {response.status_code}"
        answers.append(f"{without_password(index)}: {reason}")
    raise PdctlError(f"cannot find {filename}: " + "; ".join(answers), NO_INDEX_HINT)


def without_password(url: str) -> str:
    """Return a URL fit for messages."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _files_on(response: httpx.Response) -> tuple[IndexFile, ...]:
    """Read a project page in either of its two forms."""
    base = str(response.url)
    if JSON_TYPE in response.headers.get("content-type", ""):
        try:
            page = msgspec.json.decode(response.content, type=_JsonPage)
        except msgspec.DecodeError:
            return ()
        return tuple(IndexFile(f.filename, urljoin(base, f.url), f.hashes.get("sha256")) for f in page.files)
    links = _Links()
    links.feed(response.text)
    return tuple(_from_link(base, link) for link in links.found)


def _from_link(base: str, link: str) -> IndexFile:
    url, fragment = urldefrag(urljoin(base, link))
    digest = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
    return IndexFile(urlsplit(url).path.rpartition("/")[2], url, digest[1] if digest else None)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _pip_settings() -> dict[str, str]:
    """Return pip's settings without their sections; what is nearer to `pip download` wins."""
    settings: dict[str, str] = {}
    ranks = ("global", "install", "download", ":env:")
    lines = [line.partition("=") for line in _pip("config", "list").splitlines()]
    for rank in ranks:
        for key, _, value in lines:
            section, _, name = key.partition(".")
            if section == rank:
                settings[name] = str(ast.literal_eval(value))
    return settings


def _pip_default() -> str:
    """Return the index pip uses when nobody configured one; only its help tells."""
    found = re.search(r"--index-url.*?\(default (\S+?)\)", _pip("download", "--help"), re.DOTALL)
    return found[1] if found else ""


def _pip(*arguments: str) -> str:
    # A wide page, or pip breaks addresses at hyphens.
    environment = os.environ | {"COLUMNS": "1000"}
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.stdout if done.returncode == 0 else ""
