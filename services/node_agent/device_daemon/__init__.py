"""The device daemon: queries accelerators with their vendors' tools, and lists them in a file for the node's agent."""
