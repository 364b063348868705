"""A real node for a cluster of `cli.dev.local_control_plane`: kubelet, containerd and runc on this machine, in
namespaces of their own.
"""
