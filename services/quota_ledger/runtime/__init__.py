"""The arithmetic of runtime quotas: the shares of one level in one resource, and of many levels at once."""
