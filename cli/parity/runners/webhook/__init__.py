"""Runs the admission webhooks and the rendering of NodeSLOs on recorded cases of the domain `webhook`."""
