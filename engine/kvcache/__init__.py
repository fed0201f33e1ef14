"""Where KV lives: the page pool, its allocator and its ledger."""
