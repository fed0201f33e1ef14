"""Bring service back: plan, gates, execution that only goes forward, verification by real requests, ledger."""
