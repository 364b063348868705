"""Why an allocation of CPUs or NUMA resources fails, in upstream's words."""

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


def policy_unsatisfied(policy: str) -> str:
    """A required bind policy that the CPUs found do not obey."""
    return f"insufficient CPUs to satisfy required cpu bind policy {policy}"
