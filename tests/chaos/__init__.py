"""Chaos: aborts, restarts, stops, hostile frames and all of them together, against real engines under load.

Short form in `make test` (`test_short.py`), long form `make chaos PART=... SEED=...` (`__main__.py`).
"""
