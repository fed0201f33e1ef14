"""Where instances run: this machine, one reached by ssh, or one reached by a command that runs `sh`."""
