"""The Reservations of the published guide on a real API server, and one that takes over running pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.dev.fake_kubelet import FakeKubelets
from cli.dev.local_control_plane import Cluster
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import nanos
from tests.cluster.fixtures import StartCluster
from tests.e2e.stage import HOST, Stage, pod
from tests.support.kube_system import System, koord, running
from tests.support.waiting import until

RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
CAPACITY = {"cpu": "7800m", "memory": "28629692Ki", "pods": "110"}
APP = {"app": "app-demo"}

Json = dict[str, Any]


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[tuple[Stage, System]]:
    from cli.dev.fake_nodes import create_nodes, node_object

    cluster: Cluster = await asyncio.to_thread(own_cluster, installed=True)
    nodes = [node_object(f"node-{number}", capacity=CAPACITY) for number in range(2)]
    await asyncio.to_thread(create_nodes, cluster.api, nodes)
    kubelets = FakeKubelets(cluster.api)
    async with running(cluster, tmp_path) as system:
        kubelets.start()
        yield Stage(cluster, "default", lambda *_, **__: []), system
    kubelets.stop()


def container(**requests: str) -> Json:
    """The container of the guide's objects."""
    return {
        "name": "stress",
        "image": "polinux/stress",
        "imagePullPolicy": "Always",
        "command": ["stress"],
        "args": ["-c", "1"],
        "resources": {"requests": requests},
    }


def reservation(name: str, template: Mapping[str, Any], *owners: Json, **fields: Any) -> Json:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template, "owners": [*owners], "ttl": "1h", **fields},
    }


def template(cpu: str, memory: str, **spec: Any) -> Json:
    body = {"containers": [container(cpu=cpu, memory=memory)], "schedulerName": "koord-scheduler", **spec}
    return {"metadata": {"namespace": "default"}, "spec": body}


def named(name: str) -> Json:
    return {"object": {"name": name, "namespace": "default"}}


SELECTED = {"labelSelector": {"matchLabels": APP}}


async def test_the_guides_reservations_are_created_consumed_and_expired_as_the_guide_describes(
    site: tuple[Stage, System], tmp_path: Path
) -> None:
    stage, system = site
    await _quick_start(stage, tmp_path)
    await _one_of_several_owners_on_a_named_node(stage, tmp_path)
    await _an_expired_one(stage, tmp_path)
    await _takes_over_a_running_pod(stage, tmp_path)
    await koord(system, "audit", "verify")


async def _quick_start(stage: Stage, folder: Path) -> None:
    """A Reservation for one pod by name; its template has the namespace where older guides have it, too."""
    older = template("500m", "800Mi") | {"namespace": "default"}
    await _apply(stage, folder, reservation("reservation-demo", older, named("pod-demo-0")))
    status = await _is(stage, "reservation-demo", "Available")
    assert _same(status["allocatable"], cpu="500m", memory="800Mi")
    assert _conditions(status) == {"Scheduled": "Scheduled", "Ready": "Available"}
    body = pod("pod-demo-0", restartPolicy="Always")
    body["spec"]["containers"] = [container(cpu="200m", memory="400Mi")]
    body["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1", "memory": "1Gi"}
    await _apply(stage, folder, body)
    assert await stage.placed("pod-demo-0") == status["nodeName"]
    # The guide shows `Available`: since then the default of `allocateOnce` makes the first owner the only one.
    status = await _is(stage, "reservation-demo", "Succeeded")
    assert _same(status["allocated"], cpu="200m", memory="400Mi")
    assert [each["name"] for each in status["currentOwners"]] == ["pod-demo-0"]
    await stage.call("DELETE", f"{RESERVATIONS}/reservation-demo")
    assert stage.pod("pod-demo-0")["spec"]["nodeName"] == status["nodeName"], "it is still running"
    await stage.remove("pod-demo-0")


async def _one_of_several_owners_on_a_named_node(stage: Stage, folder: Path) -> None:
    await stage.create(pod("busy", "780m", "1216Mi", runs_on="node-1"))
    big = reservation(
        "reservation-demo-big",
        template("6", "20Gi", nodeName="node-1"),
        named("pod-demo-1"),
        SELECTED,
        allocateOnce=False,
    )
    await _apply(stage, folder, big)
    assert (await _is(stage, "reservation-demo-big", "Available"))["nodeName"] == "node-1"
    await stage.create(pod("stranger", "2", on="node-1"))
    assert "Insufficient cpu" in await stage.unschedulable("stranger")
    for name in ("app-demo-1", "app-demo-2"):
        await stage.create(pod(name, "2", "10Gi", labels=APP, limits={"cpu": "4", "memory": "20Gi"}))
    assert {await stage.placed(f"app-demo-{number}") for number in (1, 2)} == {"node-1"}

    async def consumed() -> Json:
        status: Json = await _status(stage, "reservation-demo-big")
        return status if len(status.get("currentOwners", ())) == 2 else {}

    status = await until(consumed, "both owners")
    assert status["phase"] == "Available"
    assert _same(status["allocated"], cpu="4", memory="20Gi")
    assert _same(status["allocatable"], cpu="6", memory="20Gi")
    await stage.call("DELETE", f"{RESERVATIONS}/reservation-demo-big")
    assert await stage.placed("stranger") == "node-1", "4.78 of 7.8 cores are requested without the Reservation"
    for name in ("busy", "stranger", "app-demo-1", "app-demo-2"):
        await stage.remove(name)


async def _an_expired_one(stage: Stage, folder: Path) -> None:
    """`expires` counts although `ttl` is longer; what was held is free again."""
    soon = instant_text((time.time_ns() // SECOND + 2) * SECOND)
    body = reservation("reservation-demo", template("7", "1Gi", nodeName="node-0"), named("pod-demo-0"), SELECTED)
    body["spec"]["expires"] = soon
    await _apply(stage, folder, body)
    assert _conditions(await _is(stage, "reservation-demo", "Failed"))["Ready"] == "Expired"
    await stage.create(pod("all", "7", on="node-0"))
    assert await stage.placed("all") == "node-0"
    await stage.remove("all")
    await stage.call("DELETE", f"{RESERVATIONS}/reservation-demo")


async def _takes_over_a_running_pod(stage: Stage, folder: Path) -> None:
    """A pod of the owners counts within the Reservation, and when it ends, its capacity is for the next owner alone."""
    await stage.create(pod("web-1", "5", on="node-0", labels={"app": "web"}))
    await until(lambda: stage.pod("web-1")["status"]["phase"], "web-1 runs", holds=lambda phase: phase == "Running")
    only = {"nodeSelector": {HOST: "node-0"}}
    pre = {"preAllocation": True, "allocatePolicy": "Restricted", "allocateOnce": False}
    owners = {"labelSelector": {"matchLabels": {"app": "web"}}}
    await _apply(stage, folder, reservation("keep-web", template("5", "1Gi", **only), owners, **pre))
    status = await _is(stage, "keep-web", "Available")
    assert status["nodeName"] == "node-0"

    async def owner() -> list[str]:
        return [each["name"] for each in (await _status(stage, "keep-web")).get("currentOwners", ())]

    await until(owner, "the pod that is taken over", holds=lambda names: names == ["web-1"])
    found = await until(lambda: stage.pod("web-1")["metadata"].get("annotations", {}).get(ALLOCATED), "annotation")
    assert json.loads(found)["name"] == "keep-web"
    await stage.create(pod("stranger", "5", on="node-0"))
    await stage.unschedulable("stranger")
    await stage.remove("web-1")
    await until(owner, "no owner", holds=lambda names: not names)
    await stage.create(pod("web-2", "5", labels={"app": "web"}))
    assert await stage.placed("web-2") == "node-0"
    await until(owner, "the next owner", holds=lambda names: names == ["web-2"])
    assert "nodeName" not in stage.pod("stranger")["spec"], "nobody else gets it in between"
    await stage.remove("web-2")
    await stage.call("DELETE", f"{RESERVATIONS}/keep-web")
    assert await stage.placed("stranger") == "node-0"
    await stage.remove("stranger")


async def _apply(stage: Stage, folder: Path, body: Json) -> None:
    file = folder / "object.json"
    file.write_text(json.dumps(body))
    await asyncio.to_thread(stage.cluster.kubectl, "apply", "-n", stage.namespace, "-f", str(file))


async def _status(stage: Stage, name: str) -> Json:
    status: Json = (await stage.call("GET", f"{RESERVATIONS}/{name}")).get("status", {})
    return status


async def _is(stage: Stage, name: str, phase: str) -> Json:
    """Waits until a Reservation has the phase; returns its status."""
    found: Json = await until(
        lambda: _status(stage, name), f"{name} {phase}", holds=lambda status: status.get("phase") == phase
    )
    return found


def _conditions(status: Json) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in status["conditions"]}


def _same(amounts: Mapping[str, str], **expected: str) -> bool:
    found = {name: nanos(amount) for name, amount in amounts.items()}
    return found == {name: nanos(amount) for name, amount in expected.items()}
