"""The agent as a plugin of a container runtime's Node Resource Interface (NRI)."""
