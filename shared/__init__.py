"""Shared by all services: the log, the bus, the event types, Kubernetes objects, and the runtime that every service
runs on.
"""
