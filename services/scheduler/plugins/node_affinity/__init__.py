"""NodeAffinity: node selectors and node affinity of a pod."""
