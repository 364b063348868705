"""Peak prediction of prod pods, from histograms that are checkpointed on the node."""
