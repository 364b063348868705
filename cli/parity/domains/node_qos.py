"""The node agent's other QoS strategies and runtime hooks."""

from cli.parity.domain import Domain, Rule
from services.node_agent.parity.eviction import native_is_short, upstreams
from services.node_agent.parity.node_qos import answer

DOMAIN = Domain(
    answer,
    rules=(Rule("Cpu or memory as such that is promised beyond the node", native_is_short, upstreams),),
)
