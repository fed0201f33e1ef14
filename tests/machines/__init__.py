"""Real machines to operate on: a booted systemd with its journal, and an sshd."""
