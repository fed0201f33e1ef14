"""What the routes share: one object for each API process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from enum import StrEnum

from starlette.requests import Request

from engine.api.meters import Meters
from engine.clock import Clock
from engine.config import EngineConfig, Role
from engine.errors import RequestError
from engine.frontend.chat_template import ChatTemplate
from engine.frontend.grammar_check import GrammarCheck
from engine.frontend.sampling import Limits
from engine.frontend.scheduler_client import SchedulerClient
from engine.frontend.tokenizer import Tokenizer
from engine.messages import Ready
from engine.rank_processes import RankProcesses


class Phase(StrEnum):
    """loading -> serving -> draining -> (process exit); `failed` when the scheduler died."""

    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(slots=True)
class Service:
    """The instance as the routes see it."""

    config: EngineConfig
    tokenizer: Tokenizer
    template: ChatTemplate | None
    client: SchedulerClient
    clock: Clock
    started_at: float
    """Unix time of the process start."""
    meters: Meters = field(default_factory=Meters)
    grammars: GrammarCheck = field(default_factory=GrammarCheck)
    drain_asked: asyncio.Event = field(default_factory=asyncio.Event)
    ranks: RankProcesses | None = None
    """Set as soon as they are started."""
    failure: str | None = None
    """Why the scheduler is gone."""

    @property
    def phase(self) -> Phase:
        """Return where in its life this instance is."""
        if self.failure is not None:
            return Phase.FAILED
        if self.drain_asked.is_set():
            return Phase.DRAINING
        return Phase.SERVING if self.client.ready.done() else Phase.LOADING

    @property
    def ready(self) -> Ready:
        """Return what the scheduler said when it was ready. Raises RequestError (503) before that."""
        if not self.client.ready.done():
            raise RequestError(503, "loading", "the model is still loading; /health is 200 when it serves")
        return self.client.ready.result()

    @property
    def limits(self) -> Limits:
        """Return what fits into one sequence."""
        ready = self.ready
        here = min(ready.context_length, ready.kv_tokens)
        asked = ready.context_length if self.config.role is Role.PREFILL else here
        return Limits(self.tokenizer.vocab_size, here, asked)

    @property
    def pid(self) -> int:
        """Return the process id of the API process."""
        return os.getpid()

    @property
    def rank_pids(self) -> list[int]:
        """Return the process ids of the scheduler's ranks."""
        return [] if self.ranks is None else self.ranks.pids

    def check_serving(self) -> None:
        """Raise RequestError (503) unless new requests are taken."""
        if self.phase is Phase.DRAINING:
            raise RequestError(503, "draining", "this instance is draining and takes no new requests")
        if self.failure is not None:
            raise RequestError(503, "scheduler_died", self.failure)
        _ = self.ready

    def check_model(self, name: str | None) -> None:
        """Raise RequestError (404) when a body names another model than the one that is served."""
        # "unknown" is what smg writes when the client named none.
        if name in (None, "", "default", "unknown", self.config.served_name, self.config.model):
            return
        message = f"model '{name}' is not served here; this instance serves '{self.config.served_name}'"
        raise RequestError(404, "model_not_found", message, "model")


def service_of(request: Request) -> Service:
    """Return the service that a request belongs to."""
    service: Service = request.app.state.service
    return service
