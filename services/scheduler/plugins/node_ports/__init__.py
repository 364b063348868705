"""NodePorts: host ports are used by one pod of a node."""
