"""Histograms, the models of a node, and what prod pods will not need."""

from cli.parity.case_domain import Domain
from cli.parity.runners.slo_controller.prediction import answer

DOMAIN = Domain(answer, remarks=frozenset({"ties", "boundarySteps"}))
