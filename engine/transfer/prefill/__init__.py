"""Prefill's side: its rooms, the decodes that are connected to it, the ranks that are read from."""
