"""Interference detection: which pods are slowed by best-effort neighbours, and by which of them. Pure."""
