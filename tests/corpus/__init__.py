"""Incidents made from public reports, with the right answer in `truth.toml`; `python -m tests.corpus.score` scores them."""
