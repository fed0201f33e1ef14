"""A probe of our engine, against servers that speak its shapes."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import Refused, UsageError
from pdctl.probe import Output, Stage, Verdict, prove
from pdctl.probe.report import ProbeReport
from tests.fakes.engine_pair import OUTPUT_IDS, PAGE_BYTES, FakePair, fake_pair, word_ids
from tests.fakes.http_server import Reply, Request


def run(pair: FakePair, folder: Path, **options: object) -> ProbeReport:
    return prove(pair.deployment(), lock_folder=folder, timeout_s=10.0, **options)  # type: ignore[arg-type]


def test_passes_when_tokens_are_right_and_all_pages_travelled(tmp_path: Path) -> None:
    """A request through the router is proven by scored tokens and the bytes of every prompt page."""
    with fake_pair() as pair:
        report = run(pair, tmp_path, prompt_tokens=64)
    [result] = report.results
    assert (report.verdict, report.exit_code) == (Verdict.PROVEN, 0)
    assert result.output is Output.SAME
    assert result.pair == ("prefill-0", "decode-0")
    assert result.prompt_tokens == 64
    assert result.kv_bytes == 4 * PAGE_BYTES
    assert result.kv_gb_s == pytest.approx(4 * PAGE_BYTES / 0.002 / 1e9)


def test_stages_come_in_order_with_their_own_time(tmp_path: Path) -> None:
    """Stage times come from both engines' records: since the request was sent, and since the stage before."""
    with fake_pair() as pair:
        [result] = run(pair, tmp_path).results
    assert [item.stage for item in result.stages] == [
        Stage.ROUTER_ACCEPTED,
        Stage.PREFILL_QUEUED,
        Stage.PAIRED,
        Stage.PREFILL_COMPUTED,
        Stage.KV_LANDED,
        Stage.FIRST_TOKEN,
        Stage.LAST_TOKEN,
    ]
    took = [item.took_ms for item in result.stages[1:]]
    assert took == pytest.approx([0.0, 10.0, 20.0, 30.0, 10.0, 20.0], abs=0.01)
    assert result.ttft_ms == result.stages[5].at_ms
    assert result.stage is Stage.LAST_TOKEN


def test_another_clock_is_taken_into_account(tmp_path: Path) -> None:
    """Engines whose clock is an hour ahead do not give stages of an hour."""
    with fake_pair(clock_offset_s=3600.0) as pair:
        [result] = run(pair, tmp_path).results
    assert 0 <= result.stages[0].at_ms < 5000


def test_garbled_tokens_fail(tmp_path: Path) -> None:
    """A token far below the model's own choice makes HTTP 200 a failure."""
    with fake_pair(gaps=[0.0, 0.26, 0.0]) as pair:
        report = run(pair, tmp_path)
    [result] = report.results
    assert (result.output, report.exit_code) == (Output.GARBLED, 1)
    assert "position 2" in result.why


def test_near_ties_pass(tmp_path: Path) -> None:
    """A token within the tolerance is the model's choice."""
    with fake_pair(gaps=[0.24, 0.0, 0.1]) as pair:
        assert run(pair, tmp_path).results[0].output is Output.SAME


def test_no_bytes_is_not_proven(tmp_path: Path) -> None:
    """Right tokens without KV bytes prove nothing about the transfer."""
    with fake_pair(read_pages=0) as pair:
        report = run(pair, tmp_path)
    assert report.exit_code == 1
    assert "no KV travelled" in report.results[0].why


def test_missing_page_is_not_proven(tmp_path: Path) -> None:
    """Decode that read fewer pages than the prompt has, with nothing cached, is not proven."""
    with fake_pair(read_pages=3) as pair:
        report = run(pair, tmp_path, prompt_tokens=64)
    assert report.exit_code == 1
    assert f"4 pages of {PAGE_BYTES} B" in report.results[0].why


def test_unreadable_rooms_cannot_tell(tmp_path: Path) -> None:
    """Without the engines' records the transfer is unknown, not proven."""
    with fake_pair() as pair:
        pair.decode.routes["/rooms/recent"] = Reply({"error": {"message": "admin key"}}, 403)
        report = run(pair, tmp_path)
    assert (report.verdict, report.exit_code) == (Verdict.UNKNOWN, 3)
    assert "403" in report.results[0].why


def test_unscored_answer_cannot_tell(tmp_path: Path) -> None:
    """An answer that nobody could score is unknown."""
    with fake_pair() as pair:
        pair.prefill.routes["/generate"] = Reply({"error": {"message": "busy"}}, 503)
        report = run(pair, tmp_path)
    assert (report.results[0].output, report.exit_code) == (Output.UNCHECKED, 3)


def test_failure_names_the_last_stage_and_the_live_rooms(tmp_path: Path) -> None:
    """A request that an engine fails reports how far it came and what is still live."""
    with fake_pair() as pair:

        def fail(request: Request) -> Reply:
            request_id = request.headers["X-Request-ID"]
            pair.record(request_id, 128)
            pair.recent["decode"].clear()
            record = pair.recent["prefill"].pop() | {"state": "paired"}
            record["at"] = {
                name: at - 40
                for name, at in record["at"].items()
                if name != "computed"  # type: ignore[attr-defined]
            }
            pair.live["prefill"].append(record)
            return Reply({"error": {"message": "peer_gone: prefill-0 left"}}, 502)

        pair.router.routes["/generate"] = fail
        report = run(pair, tmp_path)
    [result] = report.results
    assert report.exit_code == 1
    assert result.status == 502
    assert result.stage is Stage.PAIRED
    assert "peer_gone" in result.why
    assert [line.split(" for ")[0] for line in result.live] == ["prefill-0: room paired"]


def test_rooms_are_read_before_the_connection_is_closed(tmp_path: Path) -> None:
    """A request that hangs is described as it hangs: closing its connection would end it and hide the state."""
    with fake_pair() as pair:

        def hang(request: Request) -> Reply | None:
            room = {"request_id": request.headers["X-Request-ID"], "rid": "r", "role": "decode"}
            pair.live["decode"].append(room | {"state": "reading", "at": {"received": time.time()}})
            request.client_left(30)
            pair.live["decode"].clear()
            return None

        pair.router.routes["/generate"] = hang
        report = prove(pair.deployment(), lock_folder=tmp_path, timeout_s=1.0)
    [result] = report.results
    assert (result.error, result.stage) == ("timeout", Stage.ROUTER_ACCEPTED)
    assert result.why == "no answer within 1 s from router"
    assert [line.split(" for ")[0] for line in result.live] == ["decode-0: room reading"]
    assert 1000 <= result.took_ms < 1001


def test_engine_that_does_not_tell_its_rooms_is_named(tmp_path: Path) -> None:
    """A frozen engine shows in the report of a failed probe."""
    with fake_pair() as pair:
        pair.router.routes["/generate"] = Reply({"error": {"message": "down"}}, 503)
        pair.decode.routes["/rooms"] = Reply(b"", 500)
        [result] = run(pair, tmp_path).results
    assert result.live[0].startswith("decode-0: does not tell its rooms")


def test_refused_is_told_from_timeout(tmp_path: Path) -> None:
    """Nobody listening is `refused`, and no stage was reached."""
    with fake_pair() as pair:
        whole = pair.deployment()
        gone = msgspec.structs.replace(whole.instances[2], url="http://127.0.0.1:9")
        deployment = msgspec.structs.replace(whole, instances=(*whole.instances[:2], gone))
        [result] = prove(deployment, lock_folder=tmp_path, timeout_s=5.0).results
    assert (result.error, result.stage) == ("refused", None)


def test_direct_gives_both_legs_the_same_room(tmp_path: Path) -> None:
    """Without the router prefill and decode get the same body, with one random room."""
    with fake_pair() as pair:
        [result] = run(pair, tmp_path, direct=True).results
    prefill, decode = pair.bodies["prefill"], pair.bodies["decode"]
    assert prefill == decode
    assert prefill["bootstrap_host"] == "127.0.0.1"
    assert prefill["bootstrap_port"] == 8998
    assert 0 <= int(str(prefill["bootstrap_room"])) < 2**63
    assert (result.via, result.verdict) == ("prefill-0 -> decode-0", Verdict.PROVEN)
    assert Stage.ROUTER_ACCEPTED not in [item.stage for item in result.stages]


def test_every_prompt_is_new(tmp_path: Path) -> None:
    """Each request of a series begins with a nonce of its own, and all are tagged as probes."""
    texts: list[str] = []
    with fake_pair() as pair:
        serve = pair.router.routes["/generate"]

        def remember(request: Request) -> Reply:
            texts.append(str(request.json()["text"]))
            return serve(request)  # type: ignore[operator, no-any-return]

        pair.router.routes["/generate"] = remember
        report = run(pair, tmp_path, count=3)
    assert len({text.split()[0] for text in texts}) == 3
    assert len({result.id for result in report.results}) == 3
    assert all(result.id.startswith("pdctl-probe-") for result in report.results)


def test_prompt_has_the_length_that_was_asked(tmp_path: Path) -> None:
    """The prompt is sized with the engine's own tokenizer."""
    with fake_pair() as pair:
        run(pair, tmp_path, prompt_tokens=500)
    assert len(word_ids(str(pair.bodies["decode"]["text"]))) == 500


def test_full_kv_memory_refuses(tmp_path: Path) -> None:
    """At 95 % KV use nothing is sent."""
    with fake_pair(kv_used=950) as pair:
        with pytest.raises(Refused, match="95%"):
            run(pair, tmp_path)
        assert pair.router.requests == []


def test_full_kv_memory_can_be_forced(tmp_path: Path) -> None:
    """With force the probe is sent, and the report says so."""
    with fake_pair(kv_used=990) as pair:
        report = run(pair, tmp_path, force=True)
    assert report.exit_code == 0
    assert "--force" in report.notes[0]


def test_unified_instance_is_asked_itself(tmp_path: Path) -> None:
    """Without a router and a split the instance serves and scores; no KV has to travel."""
    with fake_pair() as pair:

        def serve(request: Request) -> Reply:
            if "input_ids" in request.json():
                return pair.prefill_generate(request)
            return Reply({"text": " salt", "output_ids": OUTPUT_IDS})

        pair.prefill.routes["/generate"] = serve
        alone = Instance(name="one", role=Role.UNIFIED, dialect="pdctl", url=pair.prefill.url)
        deployment = Deployment(name="x", model="tiny", instances=(alone,))
        [result] = prove(deployment, lock_folder=tmp_path, timeout_s=10.0).results
    assert (result.via, result.verdict, result.kv_bytes) == ("one", Verdict.PROVEN, None)


def test_deployment_without_a_way_is_a_usage_error(tmp_path: Path) -> None:
    """No router, and no pair for --direct: what is missing is said."""
    alone = Instance(name="p", role=Role.PREFILL, dialect="pdctl", url="http://127.0.0.1:9")
    deployment = Deployment(name="x", model="tiny", instances=(alone,))
    with pytest.raises(UsageError, match="no router"):
        prove(deployment, lock_folder=tmp_path)
    with pytest.raises(UsageError, match="no pair"):
        prove(deployment, direct=True, lock_folder=tmp_path)


@pytest.mark.parametrize(
    ("option", "value"), [("count", 0), ("prompt_tokens", -1), ("timeout_s", 0.0), ("timeout_s", 1e9)]
)
def test_absurd_options_are_usage_errors(tmp_path: Path, option: str, value: float) -> None:
    """A value out of range is refused before anything is sent."""
    with fake_pair() as pair:
        options = {"lock_folder": tmp_path, option: value}
        with pytest.raises(UsageError, match="out of range"):
            prove(pair.deployment(), **options)  # type: ignore[arg-type]
        assert pair.router.requests == []
