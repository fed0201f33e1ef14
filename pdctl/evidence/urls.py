"""Addresses as others write them: what is none has no host and no port, and raises nothing."""

from __future__ import annotations

from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Return the host of a URL or `host:port`; empty for what is no address."""
    try:
        return urlsplit(_whole(url)).hostname or ""
    except ValueError:
        return ""


def port_of(url: str) -> int | None:
    """Return the port of a URL or `host:port`; None where it has none, or is no address."""
    try:
        return urlsplit(_whole(url)).port
    except ValueError:
        return None


def is_base_url(url: str) -> bool:
    """Return whether it is one that can be asked: a scheme of HTTP, a host, and a port that exists."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _whole(url: str) -> str:
    return url if "://" in url else f"//{url}"
