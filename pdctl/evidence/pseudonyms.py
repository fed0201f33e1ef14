"""Names and addresses -> pseudonyms: equal stays equal, loopback stays loopback, private stays private.

Addresses keep common prefixes: two in one network are in one network afterwards. The mapping is random for each
archive and is kept only beside the exact evidence.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping

# The letters of an escape, `\n` or `%2F`, belong to no name that follows.
_ESCAPED = r"(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})"
# An underscore ends a name or an address: vLLM's router joins them to `___prefill_addr_10.0.0.1:8000___decode_addr_...`
_IPV4 = re.compile(rf"(?:(?<![A-Za-z0-9.])|{_ESCAPED})(\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?![A-Za-z0-9.]*\.\d|\d)")
# With a port, for those who write it without brackets; what comes out is parsed.
_IPV6 = re.compile(
    rf"(?:(?<![A-Za-z0-9.])|{_ESCAPED})((?:[0-9a-fA-F]{{0,5}}:){{2,9}}[0-9a-fA-F]{{0,5}})(?![A-Za-z0-9:]|\.\d)"
)
_PORT = re.compile(r"(?::\d{1,5})?:?")
_URL_HOST = re.compile(r"(?<=://)(?:[^\s/@]*@)?([A-Za-z0-9_][\w.-]*)")
_TOP = r"(?:com|net|org|io|ai|dev|cloud|internal|local|lan|corp|svc|example)"
_DOMAIN = re.compile(rf"\.{_TOP}(?![A-Za-z0-9])", re.I)
_HOST_WORD = re.compile(
    rf"(?:(?<![A-Za-z0-9./@-])(?<!\\(?=[nrt]))(?<!%(?=[0-9A-F]{{2}}))|{_ESCAPED})"
    rf"((?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+{_TOP})(?![A-Za-z0-9-])",
    re.I,
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_HOME = re.compile(r"(?<=/home/)[^/\s'\"]+|(?<=/Users/)[^/\s'\"]+")
_LOCAL_NAMES = {"localhost", "ip6-localhost"}
_FIRST_OCTETS = [n for n in range(11, 224) if n not in (100, 127, 169, 172, 192, 198, 203)]


class Pseudonyms:
    """One archive's mapping. `key` makes it, so the same key gives the same pseudonyms."""

    def __init__(
        self, key: bytes, names: Mapping[str, str] | None = None, same: Mapping[str, str] | None = None
    ) -> None:
        """`names` are known ones: original -> kind; `same` are other spellings of some: spelling -> known name."""
        self._key = key
        self._counts: dict[str, int] = {}
        self.mapping: dict[str, str] = {}
        for name, kind in (names or {}).items():
            self.of(name, kind)
        self.mapping |= {spelling: self.mapping[name] for spelling, name in (same or {}).items()}
        self._known = _words(self.mapping)

    def of(self, name: str, kind: str) -> str:
        """Return the pseudonym of a name, a new one where it has none: `KIND-xN`."""
        if name in _LOCAL_NAMES or not name:
            return name
        if name not in self.mapping:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self.mapping[name] = f"{kind}-x{self._counts[kind]}"
        return self.mapping[name]

    def text(self, text: str) -> str:
        """Return a text with every known name, host, mail address, home folder and IP address replaced."""
        if self._known is not None:
            text = self._known.sub(lambda match: self.mapping[match[0]], text)
        if "@" in text:
            text = _MAIL.sub(lambda match: self.of(match[0], "mail"), text)
        if "://" in text:
            text = _URL_HOST.sub(self._url_host, text)
        if "/home/" in text or "/Users/" in text:
            text = _HOME.sub(lambda match: self.of(match[0], "user"), text)
        if text.count(".") >= 1 and _DOMAIN.search(text):
            text = _HOST_WORD.sub(lambda match: self._host(match[1]), text)
        if text.count(".") >= 3:
            text = _IPV4.sub(lambda match: self.address(match[1]), text)
        return _IPV6.sub(lambda match: self._new_address(match[1]), text) if _may_have_ipv6(text) else text

    def address(self, address: str) -> str:
        """Return the pseudonym of an IP address; loopback, unspecified and multicast stay."""
        parsed = _parsed(address)
        if parsed is None or parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast:
            return address
        if address not in self.mapping:
            is_old = isinstance(parsed, ipaddress.IPv4Address)
            self.mapping[address] = self._ipv4(address) if is_old else self._ipv6(parsed.exploded)
        return self.mapping[address]

    def endpoint(self, text: str) -> str | None:
        """Return `address:port` with the address replaced, the port being what stands behind the last colon.

        None for what is no such thing.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not port.isdigit() or "%" in host or _parsed(host) is None:
            return None
        return f"[{self.address(host)}]:{port}" if ":" in host else f"{self.address(host)}:{port}"

    def _new_address(self, text: str) -> str:
        address, behind = _split(text)
        return self.address(address) + behind

    def _ipv4(self, address: str) -> str:
        octets = [int(octet) for octet in address.split(".")]
        kept = {10: 1, 127: 1, 192: 2 if octets[1] == 168 else 0, 169: 2 if octets[1] == 254 else 0}.get(octets[0], 0)
        if octets[0] == 172 and 16 <= octets[1] < 32:
            kept, second = 2, 16 + self._pick("172.", octets[1] - 16, 16)
            new = [172, second]
        elif kept:
            new = octets[:kept]
        else:
            new = [_FIRST_OCTETS[self._pick("", octets[0], len(_FIRST_OCTETS))]]
            kept = 1
        for index in range(kept, 4):
            new.append(self._pick(".".join(map(str, octets[:index])), octets[index], 256))
        return ".".join(map(str, new))

    def _ipv6(self, address: str) -> str:
        groups = address.split(":")
        first = groups[0] if groups[0].startswith(("fe8", "fc", "fd")) else "2001"
        rest = [f"{self._pick(':'.join(groups[:i]), int(groups[i], 16), 65536):x}" for i in range(1, 8)]
        return ":".join([first, *rest])

    def _pick(self, prefix: str, value: int, size: int) -> int:
        """Return a place in a permutation of range(size) that depends on the key and on what stands before."""
        seed = hmac.new(self._key, prefix.encode(), hashlib.sha256).digest()
        # An affine map with a multiplier that has no factor in common with the size is a permutation.
        multiplier = int.from_bytes(seed[:4]) | 1
        while _shares_a_factor(multiplier, size):
            multiplier += 2
        return (multiplier * value + int.from_bytes(seed[4:8])) % size

    def _host(self, name: str) -> str:
        return self.of(name, "host")

    def _url_host(self, match: re.Match[str]) -> str:
        host = match[1]
        is_ours = host in self.mapping.values() or host in _LOCAL_NAMES
        return match[0] if is_ours or _IPV4.fullmatch(host) or _is_ipv6(match) else self._host(host)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def _may_have_ipv6(text: str) -> bool:
    return "::" in text or text.count(":") >= 5


def _split(text: str) -> tuple[str, str]:
    """Return an IPv6 address and what stands behind it: nothing, a port, a colon of the sentence, or both."""
    last = text.rfind(":")
    for end in (len(text), last, text.rfind(":", 0, last)):
        if _parsed(text[:end]) is not None and _PORT.fullmatch(text[end:]):
            return text[:end], text[end:]
    return text, ""


def _is_ipv6(match: re.Match[str]) -> bool:
    """Return whether what looks like a URL's host is the first group of an address that stands without brackets."""
    whole = _IPV6.match(match.string, match.start(1))
    return whole is not None and _parsed(_split(whole[1])[0]) is not None


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    ordered = sorted(names, key=len, reverse=True)
    if not ordered:
        return None
    return re.compile(
        rf"(?:(?<![A-Za-z0-9-])|{_ESCAPED})(?:" + "|".join(map(re.escape, ordered)) + r")(?![A-Za-z0-9-])"
    )


def _shares_a_factor(left: int, right: int) -> bool:
    while right:
        left, right = right, left % right
    return left != 1
