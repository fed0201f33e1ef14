"""Who starts and stops an instance: the embedded shim, systemd, or somebody else."""
