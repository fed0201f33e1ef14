"""`/health/transfer` and the contract, between real engines."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.serving.rig import Pair, Process, engine, free_port, pair, running, until


def peers(process: Process) -> list[dict[str, object]]:
    return list(httpx.get(process.url + "/health/transfer", timeout=5).json()["peers"])


def test_a_canary_travels_between_engines(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Soon after the start both sides report a page that was read, and no page of the ledger was used for it."""
    with pair(tiny_model_dir, tmp_path, "--dtype", "float32") as sides:
        for process in (sides.prefill, sides.decode):
            (row,) = until(lambda p=process: [r for r in peers(p) if r["state"] == "ok"], 15, "an ok canary")
            assert httpx.get(process.url + "/health/transfer").status_code == 200
            assert row["age_s"] is not None
        assert sides.is_idle()


def test_checksums_on_one_side_only_are_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Not every request failed, with both sides well."""
    with pair(tiny_model_dir, tmp_path, prefill_flags=("--no-checksums",)) as sides:
        for process in (sides.prefill, sides.decode):
            refused = until(lambda p=process: p.get("/health")["refused_peers"], 10, "the mismatch noticed")
            assert "checksums: here 'o" in next(iter(refused.values()))


def test_a_mismatch_is_named_on_both_sides_and_fails_neither(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Another page size on decode: both health bodies name field and values with 200, and requests get an error."""
    bootstrap = free_port()
    prefill = engine("prefill", tiny_model_dir, tmp_path, "--bootstrap-port", str(bootstrap), "--page-size", "16")
    decode = engine("decode", tiny_model_dir, tmp_path, "--peers", f"127.0.0.1:{bootstrap}", "--page-size", "32")
    with running(prefill, decode):
        for process, ours, theirs in ((prefill, "16", "32"), (decode, "32", "16")):
            refused = until(lambda p=process: p.get("/health")["refused_peers"], 10, "the mismatch noticed")
            (text,) = refused.values()
            assert f"page_size: here '{ours}', peer '{theirs}'" in text
            assert process.get("/health")["status"] == "ok"
            assert [row["state"] for row in peers(process)] == ["refused"]
            assert httpx.get(process.url + "/health/transfer").status_code == 200
        body = {"model": "test", "prompt": "hello", "max_tokens": 2}
        answers = Pair(prefill, decode, bootstrap).post("/v1/completions", body)
        assert [answer.json()["error"]["code"] for answer in answers] == ["contract_mismatch"] * 2
