"""Debug view of a node's load: measured usage, pods and estimates, as JSON. Source: spec/scheduler-core.md 3.7."""

from collections.abc import Sequence
from typing import Any

from services.scheduler.plugins.load_aware_scheduling.load_cache import CountedPod, LoadCache
from services.scheduler.plugins.load_aware_scheduling.node_metric_report import Vector
from services.scheduler.plugins.load_aware_scheduling.pod_load_not_in_report import PodShare
from shared.kube.instants import instant_text


def node_view(load_cache: LoadCache, row: int) -> dict[str, Any]:
    """The pods that count on a node, with the amounts that they add; integers, cpu in milli-cores. Sums need a report."""
    shares = sorted(load_cache.shares(row), key=lambda entry: (entry[0].assigned_ns, entry[0].pod))
    report = load_cache.report(row)
    if not shares and report is None:
        return {}
    pods = [{"timestamp": instant_text(held.assigned_ns), "pod": held.pod} for held, _ in shares]
    if report is None:
        return {"pods": pods}

    def amounts(vectors: Sequence[Vector | None]) -> dict[str, int]:
        sums = (sum(sizes) for sizes in zip(*(vector for vector in vectors if vector), strict=True))
        return dict(zip(load_cache.resources, sums, strict=False))

    def adders(part: str) -> tuple[list[Vector | None], list[str]]:
        added: list[tuple[CountedPod, PodShare]] = [(held, share) for held, share in shares if getattr(share, part)]
        return [getattr(share, part) for _, share in added], sorted(held.pod for held, _ in added)

    (usage, _), (node, of_node), (prod, of_prod), (estimated, of_estimated) = map(
        adders, ("prod_usage", "node_delta", "prod_delta", "estimated")
    )
    return {
        "pods": pods,
        "updateTime": instant_text(report.updated_ns) if report.updated_ns is not None else None,
        "nodeUsage": amounts([report.usage]),
        "prodUsage": amounts([report.system, *usage]),
        "nodeDelta": amounts(node),
        "prodDelta": amounts(prod),
        "nodeEstimated": amounts(estimated),
        "nodeDeltaPods": of_node,
        "prodDeltaPods": of_prod,
        "nodeEstimatedPods": of_estimated,
    }
