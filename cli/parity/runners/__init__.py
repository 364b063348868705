"""One package per service: recorded inputs become events and requests of production code, and its answers take the recorded shape."""
