"""The scheduler process: the loop, the queues of each role, the batching policy."""
