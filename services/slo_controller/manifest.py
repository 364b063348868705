"""What the SLO controller may do."""

from shared.manifest import Manifest

MANIFEST = Manifest(name="slo-controller", writes="slo", follows=("cluster", "metrics-*", "nodes-*", "slo"))
