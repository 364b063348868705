"""LowNodeLoad: classes of nodes, victims and their order, and the anomaly detector."""

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.descheduler.low_node_load import answer, leaks, with_leaks

DOMAIN = Domain(
    answer,
    rules=(Rule("Thresholds of one pool stay with that pool", leaks, with_leaks),),
    argued_share=0.05,
)
