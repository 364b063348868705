"""What the SLO controller may do."""

from shared.runtime.manifest import Manifest

MANIFEST = Manifest(name="slo-controller", writes="slo", follows=("cluster", "metrics-*", "nodes-*", "slo"))
