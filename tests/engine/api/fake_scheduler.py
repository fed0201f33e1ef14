"""A scripted scheduler process: a fake that speaks the real sockets and messages but computes nothing.

It echoes the prompt's token ids as the answer. The request id chooses the script (see SCRIPTS). Logprobs are
`-token_id / 100`, the one alternative is the next id at 1 less. Every Generate is appended to the file that
the environment names in FAKE_SENT, one JSON a line.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from pathlib import Path

import msgspec
import zmq

from engine.config import EngineConfig, Role
from engine.messages import (
    Abort,
    Batch,
    Delta,
    Failure,
    FinishReason,
    Generate,
    Observe,
    Ready,
    TokenLogprob,
    ToScheduler,
)
from engine.observe.records import HealthReport, Ledger, LoadReport, RoomList, RoomRecord, Sample

SCRIPTS = {
    "hang": "say nothing until aborted",
    "stall": "say one token, then nothing until aborted",
    "idle": "prefill: answer; decode: as stall",
    "fail": "fail with 503 peer_gone at once",
    "later": "say one token, then fail with 502 read_failed",
    "die": "exit with code 7 at once",
    "dielater": "say one token, then exit with code 7",
    "ask": "wait for the file FAKE_GATE before the first token",
}
EOS = 2
KV_TOKENS = 2048


def logprob(token_id: int, with_top: bool) -> TokenLogprob:
    value = -token_id / 100
    return TokenLogprob(token_id, value, [(token_id, value), (token_id + 1, value - 1)] if with_top else [])


class FakeScheduler:
    def __init__(self, config: EngineConfig, run_dir: Path) -> None:
        self.config = config
        context = zmq.Context.instance()
        self.requests = context.socket(zmq.PULL)
        self.requests.connect(f"ipc://{run_dir / 'requests'}")
        self.outputs = context.socket(zmq.PUSH)
        self.outputs.connect(f"ipc://{run_dir / 'outputs'}")
        self.observe = context.socket(zmq.REP)
        self.observe.bind(f"ipc://{run_dir / 'observe'}")
        self.live: dict[str, RoomRecord] = {}
        self.ended: deque[RoomRecord] = deque(maxlen=1000)
        self.waiting: list[Generate] = []
        self.draining = False

    def run(self) -> None:
        self.send(
            Ready(
                context_length=4096,
                kv_tokens=KV_TOKENS,
                control_endpoint="tcp://127.0.0.1:9" if self.config.role is Role.PREFILL else None,
                contract={"dtype": "float32"},
                load_s=0.0,
            )
        )
        poller = zmq.Poller()
        poller.register(self.requests, zmq.POLLIN)
        poller.register(self.observe, zmq.POLLIN)
        decoder = msgspec.msgpack.Decoder(ToScheduler)
        questions = msgspec.msgpack.Decoder(Observe)
        while not (self.draining and not self.live):
            for socket, _ in poller.poll(20):
                if socket is self.observe:
                    self.observe.send(msgspec.msgpack.encode(self.answer(questions.decode(self.observe.recv()).what)))
                else:
                    self.take(decoder.decode(self.requests.recv()))
            if self.waiting and Path(os.environ["FAKE_GATE"]).exists():
                for message in self.waiting:
                    self.echo(message, message.prompt_ids)
                self.waiting.clear()
        zmq.Context.instance().destroy(linger=1000)

    def take(self, message: Generate | Abort | object) -> None:
        if isinstance(message, Generate):
            self.generate(message)
        elif isinstance(message, Abort):
            for rid in [r for r, record in self.live.items() if message.rid in (r, record.request_id)]:
                self.end(rid, f"satisfied: {message.reason}" if message.satisfied else message.reason)
                if not message.satisfied:
                    self.send(Batch([Failure(rid=rid, status=500, code="aborted", message=message.reason)]))
        else:
            self.draining = True

    def generate(self, message: Generate) -> None:
        with Path(os.environ["FAKE_SENT"]).open("ab") as sent:
            sent.write(msgspec.json.encode(message) + b"\n")
        self.live[message.rid] = RoomRecord(
            request_id=message.request_id,
            rid=message.rid,
            room=message.room.room if message.room else None,
            role=self.config.role,
            state="running",
            at={"received": message.received_at},
        )
        script = message.request_id.split("-")[0]
        if script == "idle":
            script = "echo" if self.config.role is Role.PREFILL else "stall"
        if script in ("stall", "later", "dielater"):
            self.send(Batch([Delta(rid=message.rid, token_ids=message.prompt_ids[:1])]))
        if script in ("die", "dielater"):
            # Destroying the context first sends what was said.
            zmq.Context.instance().destroy(linger=1000)
            os._exit(7)
        if script == "fail":
            self.fail(message.rid, 503, "peer_gone", "the peer is gone")
        elif script == "later":
            self.fail(message.rid, 502, "read_failed", "the read failed")
        elif script == "ask":
            self.waiting.append(message)
        elif script not in ("hang", "stall"):
            self.echo(message, message.prompt_ids)

    def echo(self, message: Generate, tokens: list[int]) -> None:
        """Answer with `tokens`, one a delta, then EOS; prefill says its one token only."""
        sampling = message.sampling
        first = 1 if self.config.role is Role.PREFILL else sampling.max_tokens
        answer = [*tokens, EOS][: min(first, sampling.max_tokens)]
        of_prompt = None
        if sampling.prompt_logprobs is not None:
            start, top = sampling.prompt_logprobs_start, sampling.prompt_logprobs > 0
            every = [None, *(logprob(token, top) for token in message.prompt_ids[1:])]
            of_prompt = every[start:]
        deltas = [
            Delta(
                rid=message.rid,
                token_ids=[token],
                logprobs=[logprob(token, sampling.top_logprobs > 0)] if sampling.logprobs else None,
                prompt_logprobs=of_prompt if at == 0 else None,
                finish=None if at < len(answer) - 1 else self.finish(token),
                stop_token_id=EOS if token == EOS and at == len(answer) - 1 else None,
                cached_tokens=4,
            )
            for at, token in enumerate(answer)
        ]
        if not deltas:
            deltas = [Delta(rid=message.rid, token_ids=[], prompt_logprobs=of_prompt, finish=FinishReason.LENGTH)]
        for delta in deltas:
            self.send(Batch([delta]))
        self.end(message.rid, None)

    def finish(self, token: int) -> FinishReason:
        return FinishReason.STOP if token == EOS else FinishReason.LENGTH

    def fail(self, rid: str, status: int, code: str, text: str) -> None:
        self.end(rid, code)
        self.send(Batch([Failure(rid=rid, status=status, code=code, message=text)]))

    def end(self, rid: str, reason: str | None) -> None:
        record = self.live.pop(rid)
        record.reason = reason
        self.ended.append(record)

    def answer(self, what: str) -> object:
        config = self.config
        rooms = RoomList(instance=config.instance, incarnation=config.incarnation, now=time.time(), rooms=[])
        if what == "rooms":
            rooms.rooms = list(self.live.values())
            return rooms
        if what == "recent":
            rooms.rooms = list(self.ended)
            return rooms
        return {
            "metrics": [
                Sample("pdengine_queue_length", 3, {"queue": "waiting"}),
                Sample("pdengine_steps_total", 7, {"kind": "decode"}),
                Sample("pdengine_new_in_this_version", 1),
            ],
            "ledger": Ledger(
                total=8,
                free=8,
                cached=0,
                running=0,
                held_for_peer=0,
                reading=0,
                fencing=0,
                pinned=0,
                balanced=True,
            ),
            "loads": LoadReport(
                running=len(self.live),
                waiting=0,
                queues={"waiting": 0},
                oldest_age_s={"waiting": 0.0},
                kv_tokens_used=0,
                kv_tokens_total=KV_TOKENS,
            ),
            "health": HealthReport(ok=True, problems=[], loop_age_s=0.0, threads={"loop": True}, refused_peers={}),
        }[what]

    def send(self, message: Batch | Ready) -> None:
        self.outputs.send(msgspec.msgpack.encode(message))


def main() -> None:
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    FakeScheduler(config, Path(sys.argv[sys.argv.index("--run-dir") + 1])).run()


if __name__ == "__main__":
    main()
