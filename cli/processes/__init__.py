"""Child processes that never outlive their parent, free ports on loopback, and logs that stay below a size."""
