"""Over-commitment: what a node does not use is sold again, and each node's agent is told how to protect who was there first."""
