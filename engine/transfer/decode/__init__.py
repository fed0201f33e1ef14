"""Decode's side: its rooms, its links to prefills, what it orders its ranks to read."""
