"""The node agent's other QoS strategies and runtime hooks."""

from cli.parity.case_domain import Domain, Rule
from cli.parity.runners.node_agent.eviction import native_is_short, upstreams
from cli.parity.runners.node_agent.node_qos import answer

DOMAIN = Domain(
    answer,
    rules=(Rule("Native cpu or memory requested beyond the node", native_is_short, upstreams),),
)
