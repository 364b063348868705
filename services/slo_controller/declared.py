"""What the SLO controller may do."""

from shared.declared import Declared

DECLARED = Declared(name="slo-controller", writes="slo", follows=("cluster", "metrics-*", "nodes-*", "slo"))
