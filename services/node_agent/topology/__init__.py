"""The node's hardware, CPU topology and kubelet CPU manager, reported for its NodeResourceTopology."""
