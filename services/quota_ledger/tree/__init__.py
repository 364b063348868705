"""A tree of quotas: requests and use summed from the leaves up, runtimes shared from the root down."""
