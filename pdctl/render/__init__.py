"""Reports for people and programs: terminal, short, json, markdown."""
