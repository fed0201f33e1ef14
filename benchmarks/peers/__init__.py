"""Programs that measure another engine from the inside, where it has no server of its own."""
