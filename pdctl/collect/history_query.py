"""Ask a Prometheus for a range of samples: `python -P history_query.py < QUERY.json`, JSON on stdout.

A program of its own: the client library has no overall deadline, and its import takes 110 ms that others need not pay.
`-P` keeps this folder out of the module path: it has an `http` of its own.

Reads {"url", "selector", "start", "end", "step_s", "timeout_s"}. Exit codes: 3 the library is missing, 4 no answer.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

MISSING, NO_ANSWER = 3, 4


def main() -> int:
    """Print what Prometheus answers."""
    try:
        import requests
        from prometheus_api_client import PrometheusConnect
        from prometheus_api_client.exceptions import PrometheusApiClientException
    except ImportError as error:
        print(f"prometheus-api-client is not installed: pip install prometheus-api-client ({error})", file=sys.stderr)
        return MISSING
    asked: dict[str, Any] = json.load(sys.stdin)
    session = requests.Session()
    session.trust_env = False
    client = PrometheusConnect(url=asked["url"], session=session, timeout=asked["timeout_s"])
    try:
        found = client.custom_query_range(
            query=asked["selector"],
            start_time=datetime.fromtimestamp(asked["start"], UTC),
            end_time=datetime.fromtimestamp(asked["end"], UTC),
            step=str(asked["step_s"]),
        )
    except (PrometheusApiClientException, requests.RequestException, KeyError, ValueError) as error:
        print(f"{asked['url']} does not answer the query: {error}", file=sys.stderr)
        return NO_ANSWER
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
