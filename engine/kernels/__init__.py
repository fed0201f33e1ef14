"""Attention over pages: one dispatch point, a torch reference for each kernel."""
