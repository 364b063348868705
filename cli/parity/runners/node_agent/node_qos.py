"""The `node-qos` vectors: every other strategy and hook, each op in the module that answers it."""

from collections.abc import Callable, Mapping
from typing import Any

from cli.parity.runners.node_agent import blkio, burst, eviction, hooks, memory

ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "batchResource": hooks.batch_resources,
    "blkio": blkio.block_io,
    "convert": hooks.conversions,
    "cpuBurst": burst.cpu_burst,
    "cpuEvict": eviction.cpu_evictions,
    "coreSched": hooks.core_sched,
    "cpuNormalization": hooks.normalization,
    "groupIdentity": hooks.identities,
    "memoryEvict": eviction.memory_evictions,
    "memoryQOS": memory.memory,
    "resctrl": memory.resctrl_groups,
}


def answer(op: str, given: Mapping[str, Any]) -> Any:
    """What our code says to one case's input, in the shape of the case's output."""
    return ANSWERS[op](given)
