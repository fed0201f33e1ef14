"""Bring prefill/decode deployments up, prove them with real requests, find what is wrong, repair it."""

__version__ = "0.1.0"
