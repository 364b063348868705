"""CPU suppress of the node agent: the formula, the selection of CPUs, rounds against a tree of cgroups."""

from cli.parity.case_domain import Domain
from cli.parity.runners.node_agent.cpusuppress import answer

DOMAIN = Domain(answer)
