"""The order of the scheduling queue, for recorded pods with the times at which they were queued."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from cli.parity.runners.scheduler.recorded_cluster import Cluster, incoming
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.queue.units import Unit, turn
from shared.kube.instants import instant_ns


def queue_order(given: Mapping[str, Any], *, by_sub_priority: bool) -> dict[str, Any]:
    """Returns the names of the pods, first to be tried first; those that are equal for the queue are in one list.

    Pods of one queueing time arrive by name; the queue has no other order for them.
    """
    cluster = Cluster(["NodeResourcesFit"], {})
    engine = cluster.engine
    queue = CycleInputs(engine.view, engine.cache.profiles, by_sub_priority=by_sub_priority)
    queued = sorted(
        given["items"], key=lambda item: (instant_ns(item["queueTimestamp"]), item["pod"]["metadata"]["name"])
    )
    times: dict[str, str] = {}
    for item in queued:
        metadata = item["pod"]["metadata"]
        pod = incoming({**item["pod"], "metadata": {**metadata, "uid": metadata["name"]}})
        cluster.observe_pod(pod)
        times[metadata["name"]] = item["queueTimestamp"]
    queue.settle()
    line = sorted(queue.queue.choose(len(queued), ()), key=turn)

    def place(unit: Unit) -> tuple[Any, ...]:
        return *unit.order[:3], times[unit.pods[0].uid]

    return {"order": [_names(list(units)) for _, units in groupby(line, key=place)]}


def _names(units: Sequence[Unit]) -> list[str]:
    return sorted(unit.pods[0].uid for unit in units)
