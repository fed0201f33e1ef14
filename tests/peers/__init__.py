"""Other engines and routers as real processes, each from a virtual environment of its own (`make peers`).

smg before our own engine needs none: tests/serving, above all test_router, test_probe, test_diagnose, test_recovery.
"""
