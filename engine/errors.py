"""The engine's exception tree.

EngineError
├── ConfigError          a flag, file or environment value is wrong: exit 2
├── CheckpointError      the model cannot be loaded (missing, corrupt, unsupported): exit 2
├── RequestError         one request is wrong or cannot be served: an HTTP status
├── TransferError        the transfer backend failed in a way that ends the instance
└── RankLost             a collective failed: a rank is gone, and the instance ends
"""

from __future__ import annotations


class EngineError(Exception):
    """Anything this engine raises on purpose. The text says what, where, and what to do next."""


class ConfigError(EngineError):
    """A setting is wrong; names key, value and source."""


class CheckpointError(EngineError):
    """The model's files are missing, corrupt, truncated or of an unsupported architecture."""


class TransferError(EngineError):
    """NIXL or the control channel failed beyond what a room can absorb."""


class RankLost(EngineError):
    """A collective failed: another rank died, or did not come within the time limit."""


class RequestError(EngineError):
    """A request that is refused; becomes an OpenAI-shaped error body.

    `status` is one of 400, 401, 403, 404, 413, 500, 502, 503; `code` is a stable word for programs.
    """

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
