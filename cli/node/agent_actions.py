"""The actions of a node's agent, as sentences: suppression of best-effort pods, CPU bursts, evictions, and
interference.
"""

from datetime import datetime
from typing import Any

from cli.node.recorded_interference import interference_text
from cli.terminal.amounts import human_amount
from shared.events import Event, RecordedEvent
from shared.events.nodes import (
    AgentEvictionRequested,
    BestEffortSuppressed,
    PodBurst,
    PodInterfered,
    PodInterferenceEnded,
)
from shared.log.codec import Codec
from shared.log.reader import LogReader, recorded

ACTIONS: tuple[type[Event], ...] = (
    BestEffortSuppressed,
    PodBurst,
    AgentEvictionRequested,
    PodInterfered,
    PodInterferenceEnded,
)
PERIOD_US = 100_000
"""The kernel's period of a cpu quota, in microseconds."""


async def actions_of(
    log: LogReader, node: str, *, since: datetime | None = None, newest: int | None = None
) -> list[RecordedEvent]:
    """Returns the recorded actions of a node's agent, oldest first."""
    codec, found = Codec(ACTIONS), list[RecordedEvent]()
    for context in await log.contexts():
        if not context.startswith("nodes-"):
            continue
        async for row in log.rows(context=context, key=node, since=since, newest=newest):
            if (event := codec.one(row.type, row.data)) is not None:
                found.append(recorded(row, event))
    return sorted(found, key=lambda record: (record.at_ns, record.seq))


def action_text(event: Any, pod: str = "") -> str:
    """Returns what an action did.

    Args:
        pod: `namespace/name` of the pod that the reader knows; it is not named again.
    """
    match event:
        case BestEffortSuppressed(cpu_milli=None):
            return "best-effort pods may use all cpu again"
        case BestEffortSuppressed(policy=policy, cpu_milli=cpu, cpus=cpus):
            how = f"CPUs {cpus}" if policy == "cpuset" and cpus else "a cpu quota"
            return f"best-effort pods may use {human_amount('cpu', cpu)} cpu ({how})"
        case PodBurst():
            return f"{_whose(event, pod)}: {'; '.join(_burst(event)) or 'its cpu limit was changed'}"
        case AgentEvictionRequested(reason=reason):
            return f"the agent requests the eviction of {'it' if event.pod == pod else event.pod}: {reason}"
        case PodInterfered() | PodInterferenceEnded():
            return interference_text(event, _whose(event, pod))
    raise AssertionError("one of ACTIONS")


def _burst(event: PodBurst) -> list[str]:
    found = []
    if event.cfs_quota_us is not None:
        cores = human_amount("cpu", event.cfs_quota_us * 1000 // PERIOD_US)
        found.append("no cpu quota" if event.cfs_quota_us < 0 else f"its cpu quota is {cores} from here on")
    if event.cfs_burst_us is not None:
        found.append(f"it may save up {event.cfs_burst_us / 1000:g} ms of cpu")
    return found


def _whose(event: PodBurst | PodInterfered | PodInterferenceEnded, pod: str) -> str:
    name = event.pod or f"pod {event.pod_uid}"
    if isinstance(event, PodBurst) and event.container:
        container = f"container {event.container.rpartition('/')[2][:12]}"
        return container if event.pod == pod and pod else f"{container} of {name}"
    return "the pod" if event.pod == pod and pod else name
