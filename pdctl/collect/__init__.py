"""One collector per file; each has a deadline."""
