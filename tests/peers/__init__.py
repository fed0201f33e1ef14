"""Other engines and routers, each from a virtual environment of its own that an environment variable names."""
