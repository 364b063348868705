"""VolumeBinding: nodes from which the volumes of a pod can be reached or provisioned."""
