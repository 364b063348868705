"""A real node for a cluster of `cli.dev.cluster`: kubelet, containerd and runc on this machine, in namespaces of their own."""
