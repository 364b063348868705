"""Kubernetes objects as this system keeps them: the few fields it uses, quantities, and names."""
