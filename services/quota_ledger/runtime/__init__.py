"""The arithmetic of runtime quotas: how one level shares its capacity, one resource at a time and many levels at once."""
