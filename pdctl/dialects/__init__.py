"""What an engine family calls things: one file per family, tables rather than branches."""
