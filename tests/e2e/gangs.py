"""Gangs on a real API server: their objects, nodes of their own for each run, and the checks that none is partial."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cli.dev.fake_nodes import create_nodes, delete_nodes, node_object
from shared.domain.gang import LIGHTWEIGHT_MINIMUM, LIGHTWEIGHT_NAME, POD_GROUP_LABEL
from shared.events.scheduling import PodPlaced
from tests.e2e.stage import Stage, pod
from tests.support.kube_system import System

Json = dict[str, Any]
PREFIX = "gang.scheduling.koordinator.sh"
RUN = "run"


class Gang(NamedTuple):
    """A Strict gang: its members' names, and how many of them it needs."""

    name: str
    minimum: int
    members: tuple[str, ...]


class Ground(NamedTuple):
    """Nodes of a run, which no other pods use.

    Attributes:
        run: label of its nodes, and part of their names.
        slots: pods of one core that a node has place for.
    """

    stage: Stage
    run: str
    slots: int

    def node(self, number: int) -> str:
        return f"{self.run}-n{number}"

    async def add_nodes(self, numbers: Iterable[int]) -> None:
        capacity = {"cpu": str(self.slots), "memory": "64Gi", "pods": "250"}
        bodies = [node_object(self.node(each), capacity=capacity, labels={RUN: self.run}) for each in numbers]
        await asyncio.to_thread(create_nodes, self.stage.cluster.api, bodies)

    async def remove_nodes(self, numbers: Iterable[int]) -> None:
        await asyncio.to_thread(delete_nodes, self.stage.cluster.api, [self.node(each) for each in numbers])

    def pod(self, name: str, **fields: Any) -> Json:
        """Returns a pod of one core for these nodes."""
        return pod(name, fields.pop("cpu", "1"), nodeSelector={RUN: self.run}, **fields)

    def member(self, name: str, gang: Gang, form: str) -> Json:
        """Returns a member of a gang that is declared by `PodGroup`, `labels` or `annotations`."""
        if form == "labels":
            return self.pod(name, labels={LIGHTWEIGHT_NAME: gang.name, LIGHTWEIGHT_MINIMUM: str(gang.minimum)})
        if form == "annotations":
            declared = {f"{PREFIX}/name": gang.name, f"{PREFIX}/min-available": str(gang.minimum)}
            return self.pod(name, annotations=declared)
        return self.pod(name, labels={POD_GROUP_LABEL: gang.name})

    async def pods(self) -> dict[str, Json]:
        """Returns the present pods of the run by name."""
        found = await self.stage.call("GET", self.stage.path())
        return {
            each["metadata"]["name"]: each
            for each in found["items"]
            if (each["spec"].get("nodeSelector") or {}).get(RUN) == self.run
        }

    async def nodes_of_pods(self) -> dict[str, str]:
        """Returns name -> node of each bound pod; checks that no node has more pods than slots."""
        on = {
            name: each["spec"]["nodeName"] for name, each in (await self.pods()).items() if "nodeName" in each["spec"]
        }
        assert all(count <= self.slots for count in Counter(on.values()).values()), on
        return on


def pod_group(name: str, minimum: int, annotations: Mapping[str, str] | None = None) -> Json:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"minMember": minimum},
    }


def groups_path(stage: Stage, name: str = "") -> str:
    return f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{stage.namespace}/podgroups" + (
        f"/{name}" if name else ""
    )


async def create_group(stage: Stage, name: str, minimum: int, annotations: Mapping[str, str] | None = None) -> None:
    await stage.call("POST", groups_path(stage), pod_group(name, minimum, annotations))


async def group_status(stage: Stage, name: str) -> Json:
    """Returns the status that the API server has."""
    found: Json = (await stage.call("GET", groups_path(stage, name))).get("status", {})
    return found


def bound_members(gang: Gang, on: Mapping[str, str]) -> int:
    return sum(name in on for name in gang.members)


def none_is_partial(gangs: Sequence[Gang], on: Mapping[str, str]) -> bool:
    """Reports whether of each gang no member is bound, or at least as many as it needs."""
    return all(found == 0 or found >= gang.minimum for gang in gangs for found in [bound_members(gang, on)])


async def check_first_placements(system: System, stage: Stage, gangs: Sequence[Gang]) -> None:
    """Checks in the log that the first cycle that placed members of a gang placed at least its minimum."""
    gang_of = {f"{stage.namespace}/{name}": gang for gang in gangs for name in gang.members}
    first: dict[str, int] = {}
    placed: Counter[str] = Counter()
    async for row in system.log.rows(context="scheduling", kind="PodPlaced.v1"):
        event = msgspec.json.decode(row.data, type=PodPlaced)
        if (gang := gang_of.get(event.pod)) and first.setdefault(gang.name, event.cycle) == event.cycle:
            placed[gang.name] += 1
    assert set(first) == {gang.name for gang in gangs}, "each gang was placed"
    partial = {gang.name: placed[gang.name] for gang in gangs if placed[gang.name] < gang.minimum}
    assert not partial, f"gangs that were placed in part: {partial}"
