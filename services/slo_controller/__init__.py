"""The SLO controller: overcommits unused resources as batch and mid; writes NodeSLO, NodeMetric and topology objects."""
