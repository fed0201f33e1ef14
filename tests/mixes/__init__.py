"""Random request mixes: the same tokens however they are served (DESIGN section 8, "same tokens")."""
