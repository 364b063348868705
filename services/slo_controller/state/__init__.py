"""The state of the SLO controller: a fold over nodes, pods, usage reports and earlier decisions."""
