"""Batch and mid resources of a node, their difference test, and the strategy of a node."""

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.slo_controller.overcommit import (
    answer,
    crashes,
    has_excessive_zones,
    lacks_the_node,
    with_excessive_zones,
)

DOMAIN = Domain(
    answer,
    rules=(
        Rule("A report without the node's usage", lacks_the_node, crashes),
        Rule("Zones sum to no more than their node", has_excessive_zones, with_excessive_zones),
    ),
    argued_share=0.03,
)
