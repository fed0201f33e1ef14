"""Evidence in, report out. Nothing in this package reads a file, a clock or a socket."""
