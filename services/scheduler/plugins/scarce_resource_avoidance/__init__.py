"""ScarceResourceAvoidance: keeps pods that need no scarce resource away from the nodes that have it."""
