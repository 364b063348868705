"""Targets of `koord bench e2e`: an API that takes pods and reports bindings, and a scheduler that works on it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cli.bench.e2e_pod_latency import Figures, Timeline
from shared.errors import KoordError

WARM_UP = 50
"""Pods that are bound before anything is measured: connections are open then, and every code path has run once."""

WITHIN_S = 120.0


class NotAllBound(KoordError):
    """Some pods were not bound in time."""


class Side(Protocol):
    """An API with nodes, and the client that measures on it."""

    async def run(self, names: Sequence[str], timeline: Timeline) -> None:
        """Creates pods of these names as fast as the API takes them and notes when each is bound."""
        ...

    async def clear(self, names: Sequence[str]) -> None:
        """Deletes them."""
        ...


def pod(name: str, namespace: str, scheduler: str) -> dict[str, Any]:
    """A pod of 500m and 512Mi."""
    resources: Mapping[str, Any] = {"requests": {"cpu": "500m", "memory": "512Mi"}}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "bench"}},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def pod_group(name: str, minimum: int) -> dict[str, Any]:
    """The PodGroup of a gang that needs so many pods."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum},
    }


async def measure(side: Side, pods: int, turn: int, note: Callable[[str], None]) -> Figures:
    """Warms up, creates `pods` pods, waits until all are bound, and deletes them.

    Raises:
        NotAllBound: some are not bound after two minutes; names the first.
    """
    await _run(side, [f"warm-{turn}-{number}" for number in range(WARM_UP)])
    figures = await _run(side, [f"pod-{turn}-{number}" for number in range(pods)])
    note(
        f"  {figures.pods_per_s:,.0f} pods/s, p50 {figures.latency_p50_s:.3f} s, p99 {figures.latency_p99_s:.3f} s"
        f" (the API took {figures.create_per_s:,.0f}/s)"
    )
    return figures


async def _run(side: Side, names: Sequence[str]) -> Figures:
    timeline = Timeline(len(names))
    try:
        async with asyncio.timeout(WITHIN_S):
            await side.run(names, timeline)
    except TimeoutError as error:
        left = timeline.waiting
        first = f", {left[0]} among them" if left else ""
        raise NotAllBound(f"{len(left)} of {len(names)} pods are not bound after {WITHIN_S:g} s{first}") from error
    await side.clear(names)
    return timeline.figures()


def best(turns: Sequence[Figures]) -> Figures:
    """The turn with the highest rate."""
    return max(turns, key=lambda one: one.pods_per_s)
