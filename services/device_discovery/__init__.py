"""Device discovery: the inventories of node agents in, events of `devices-*` and Device objects out."""
