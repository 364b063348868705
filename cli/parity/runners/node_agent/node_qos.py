"""Runs the domain `node-qos`: every strategy and hook but CPU suppress, each op in a module of its own."""

from collections.abc import Callable, Mapping
from typing import Any

from cli.parity.runners.node_agent import block_io, burst, eviction, hooks, memory

ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "batchResource": hooks.batch_resources,
    "blkio": block_io.block_io,
    "convert": hooks.conversions,
    "cpuBurst": burst.cpu_burst,
    "coreSched": hooks.core_sched,
    "cpuNormalization": hooks.normalization,
    "groupIdentity": hooks.identities,
    "memoryQOS": memory.memory,
    "resctrl": memory.resctrl_groups,
}


def answer(op: str, given: Mapping[str, Any]) -> Any:
    """Runs one case."""
    return eviction.evictions(op, given) if op in eviction.OPS else ANSWERS[op](given)
