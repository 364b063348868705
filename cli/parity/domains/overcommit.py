"""Batch and mid resources of a node, their difference test, and the strategy of a node."""

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.slo_controller.overcommit import answer, crashes, lacks_the_node

DOMAIN = Domain(answer, rules=(Rule("A report without the node's usage", lacks_the_node, crashes),))
