"""Rehearsals: every wedge from the field made for real in a deployment of its own, named, recovered and proven."""
