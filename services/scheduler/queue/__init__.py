"""The pods that wait: their order, their backoff, the quota gate, and the events after which a refused pod is tried
again.
"""
