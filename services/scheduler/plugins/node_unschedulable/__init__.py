"""NodeUnschedulable: cordoned nodes take no new pods."""
