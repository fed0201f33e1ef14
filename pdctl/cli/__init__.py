"""One file per command: parse, call, render, exit code. No logic."""
