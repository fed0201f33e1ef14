"""Incidents made from public reports, with the right answer in `truth.toml`; `make corpus` scores them."""
