"""The simulated kubelets: pods start and end, nodes report their usage."""
