"""NodeResourcesFit: requests must fit into the free resources of a node; scores by allocation."""
