"""Shared pieces of several plugins: node-only filters, node selectors, tolerations, volumes, topology domains."""
