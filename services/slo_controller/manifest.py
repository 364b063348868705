"""The contexts that the SLO controller reads and writes."""

from shared.runtime.manifest import Manifest

MANIFEST = Manifest(name="slo-controller", writes="slo", follows=("cluster", "metrics-*", "nodes-*", "slo"))
