"""What can go wrong with an exchange is told apart; every case is a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pdctl.collect.credentials import api_key
from pdctl.collect.http import Answer, InstanceClient, Outcome, Timeouts
from pdctl.errors import UsageError
from tests.fakes.http_server import FakeServer, Reply

QUICK = Timeouts(connect_s=1.0, read_s=0.3, write_s=1.0, total_s=0.6)


def get(url: str, path: str = "/x", **options: object) -> Answer:
    with InstanceClient(url, timeouts=QUICK, **options) as client:  # type: ignore[arg-type]
        return client.get(path)


@contextmanager
def raw_server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection, give it to `serve`, and close it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        connection, _ = listener.accept()
        with connection:
            serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread.join(10)
    listener.close()


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_answer_has_status_body_and_time() -> None:
    """An answer is given back whole, whatever its status."""
    with FakeServer({"/x": Reply({"a": 1}, 503)}) as server:
        answer = get(server.url)
    assert (answer.outcome, answer.status, answer.body) == (Outcome.ANSWERED, 503, b'{"a": 1}')
    assert not answer.ok
    assert 0 < answer.took_ms < 600


def test_nobody_listening_is_refused() -> None:
    """A closed port is `refused`."""
    assert get(f"http://127.0.0.1:{unused_port()}").outcome is Outcome.REFUSED


def test_silence_is_a_timeout() -> None:
    """A server that accepts and says nothing is `timeout`, not `refused`."""
    done = threading.Event()
    with raw_server(lambda connection: done.wait(10) and None) as url:
        answer = get(url)
        done.set()
    assert answer.outcome is Outcome.TIMEOUT
    assert answer.took_ms >= 300


def test_dripping_is_a_timeout() -> None:
    """A server that sends a byte now and then does not keep us beyond the total time."""
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not done.wait(0.05):
            connection.sendall(b"x")

    with raw_server(drip) as url:
        answer = get(url)
        done.set()
    assert answer.outcome is Outcome.TIMEOUT
    assert 600 <= answer.took_ms < 5000


def test_close_without_answer_is_a_reset() -> None:
    """A connection that is closed before the answer is `reset`."""
    with raw_server(lambda connection: connection.recv(65536) and None) as url:
        assert get(url).outcome is Outcome.RESET


def test_half_an_answer_is_a_reset() -> None:
    """A connection that breaks inside the body is `reset`, although there was a status."""
    with FakeServer({"/x": Reply(b"half", content_length=1000)}) as server:
        assert get(server.url).outcome is Outcome.RESET


def test_what_is_not_http_is_garbled() -> None:
    """Bytes that are no HTTP answer are told apart from a broken connection."""

    def babble(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\r\n\r\n")

    with raw_server(babble) as url:
        assert get(url).outcome is Outcome.GARBLED


def test_name_that_does_not_resolve_is_dns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name without an address is `dns`."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert get("http://engine.invalid:30000").outcome is Outcome.DNS


def test_plain_http_behind_https_is_tls() -> None:
    """A server that does not speak TLS is `tls`."""
    with FakeServer() as server:
        assert get(server.url.replace("http:", "https:")).outcome is Outcome.TLS


def test_body_is_bounded() -> None:
    """More than the bound is not read, and is said."""
    with FakeServer({"/x": Reply(b"x" * 100_000)}) as server:
        answer = get(server.url, max_body_bytes=1000)
    assert (answer.outcome, len(answer.body)) == (Outcome.TOO_LARGE, 1000)


def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine is asked itself even where a proxy is configured."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with FakeServer({"/x": Reply(b"")}) as server:
        assert get(server.url).ok


def test_redirect_is_not_followed() -> None:
    """A redirect is an answer; the key does not travel to where it points."""
    with FakeServer() as other, FakeServer({"/x": Reply(b"", 307, {"Location": other.url})}) as server:
        assert get(server.url, key="secret").status == 307
        assert other.requests == []


def test_key_comes_from_the_file_before_the_environment(tmp_path: Path) -> None:
    """An instance's own key file wins over the variable; white space around the key is dropped."""
    file = tmp_path / "key"
    file.write_text(" from-file \n")
    assert api_key(str(file), {"PDCTL_API_KEY": "from-env"}) == "from-file"
    assert api_key(None, {"PDCTL_API_KEY": "from-env"}) == "from-env"
    assert api_key(None, {}) is None


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff\xfe"])
def test_bad_key_file_is_a_usage_error(tmp_path: Path, content: bytes | None) -> None:
    """A key file that is missing, empty, or holds what no header may carry is named."""
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match="key"):
        api_key(str(file), {})


def test_key_is_sent_as_bearer() -> None:
    """The key goes into the Authorization header."""
    with FakeServer({"/x": Reply(b"")}) as server:
        get(server.url, key="abc")
    assert server.requests[0].headers["Authorization"] == "Bearer abc"


def test_unusable_ca_file_is_a_usage_error(tmp_path: Path) -> None:
    """A certificate file that cannot be read is named, before anything is sent."""
    with pytest.raises(UsageError, match="ca_file"):
        InstanceClient("https://127.0.0.1:1", ca_file=str(tmp_path / "none.pem"))
