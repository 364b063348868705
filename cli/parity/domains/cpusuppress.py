"""CPU suppress of the node agent: the formula, the selection of CPUs, rounds against a tree of cgroups."""

from cli.parity.domain import Domain
from services.node_agent.parity.cpusuppress import answer

DOMAIN = Domain(answer)
