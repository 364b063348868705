"""The QoS manager: strategies decide from usage and the NodeSLO, enforcers write cgroups and report actions."""
