"""Load as agents make it: many sessions of several turns with tools, whose answers are checked, not only counted."""
