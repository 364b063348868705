"""The whole system in one process, under simulated faults: real cores and shells of all services over an in-memory log,
bus and Kubernetes API, in virtual time and in an order that a seed decides.
"""
