"""The audit log of the agent: what it wrote and requested on its node, as koordlet records it."""
