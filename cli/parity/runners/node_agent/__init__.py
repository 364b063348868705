"""Runs the node agent's strategies and hooks on recorded cases of the domains `cpusuppress` and `node-qos`."""
