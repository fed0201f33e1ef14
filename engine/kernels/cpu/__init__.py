"""A whole step in C++ for CPUs: compiled where it runs, torch where it cannot be."""
