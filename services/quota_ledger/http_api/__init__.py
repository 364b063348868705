"""Upstream's debug API of elastic quotas over HTTP."""
