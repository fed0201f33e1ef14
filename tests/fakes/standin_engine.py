"""A small real HTTP server that stands for an engine or router: `python standin_engine.py PORT [BEHAVIOUR]...`.

Behaviours: `unwell` answers /health with 503; `hang` accepts and never answers; `stubborn` ignores SIGTERM;
`dies` prints a traceback and exits with 7; `crowd` starts a child that outlives its parent.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOADS = {"running": 3, "waiting": 2, "queues": {"bootstrap": 2}, "oldest_age_s": {"bootstrap": 41.5, "running": 1.0}}


def main(port: int, behaviours: set[str]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "hang" in behaviours:
                threading.Event().wait()
            is_health = self.path in ("/health", "/readiness")
            is_unwell = is_health and "unwell" in behaviours
            body = json.dumps({"ok": not is_unwell, "problems": ["loading"] if is_unwell else []} | LOADS).encode()
            self.send_response(503 if is_unwell else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    if "dies" in behaviours:
        print("loading weights", flush=True)
        print("RuntimeError: the weights are not weights", flush=True)
        sys.exit(7)
    if "stubborn" in behaviours:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "crowd" in behaviours:
        subprocess.Popen(["sleep", "1000"])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"listening on {port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), set(sys.argv[2:]))
