"""The bytes: NIXL, descriptors, checksums, and the worker of each rank that rank 0's control thread commands."""
