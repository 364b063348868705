"""LowNodeLoad: pods leave nodes whose measured usage is high, for nodes where it is low."""
