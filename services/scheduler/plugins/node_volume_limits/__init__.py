"""NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node."""
