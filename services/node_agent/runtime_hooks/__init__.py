"""What upstream's runtime hooks give to pods and containers, here as values that are reconciled. Pure."""
