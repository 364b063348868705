"""Budget, hold, release and breaker of evictions: a gateway on a real API server, and `koord evictions`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from cli.dev.local_control_plane import Cluster
from cli.doctor.all_checks import examine
from cli.main import koord
from cli.supervisor.endpoints import Endpoints
from shared.events.intents import EvictionRequested
from shared.log.reader import Row
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.test_evict import eviction_of
from tests.support.gateway_process import System, running
from tests.support.waiting import until

LIMITS = {"KOORD_GATEWAY_EVICTIONS_PER_NODE": "2", "KOORD_GATEWAY_EVICTION_BREAKER": "3"}
OUTCOMES = ("PodEvicted", "EvictionRejected", "EvictionFailed")


async def koord_evictions(system: System, *arguments: str) -> dict[str, Any]:
    """Runs `koord evictions` as an operator does; returns what it prints as JSON."""
    assert system.gateway.env is not None
    env = {name: system.gateway.env[name] for name in ("KOORD_NATS", "KOORD_POSTGRES")}
    command = ["evictions", *arguments, "--output", "json"]
    done = await asyncio.to_thread(CliRunner().invoke, koord, command, env=env)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def intents_with(rows: Sequence[Row], *kinds: str) -> list[str]:
    """Returns the intents to which events of these kinds belong, in the order of the log."""
    return [row.cause or "" for row in rows if row.type.split(".")[2] in kinds]


def evicted_pods(cluster: Cluster, namespace: str) -> int:
    """Returns the number of pods that the API server has begun to delete."""
    pods = cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sum("deletionTimestamp" in pod["metadata"] for pod in pods)


async def bound_pods(system: System, make_pod: MakePod, node: str, count: int) -> list[EvictionRequested]:
    """Creates pods on a node, and returns their evictions once the gateway has recorded the pods."""
    made = [make_pod(f"{node}-{number}", nodeName=node) for number in range(count)]
    uids = {pod["metadata"]["uid"] for pod in made}

    def all_observed(rows: list[Row]) -> bool:
        return uids <= {row.correlation for row in rows if row.type.endswith(".PodObserved.v1")}

    await system.until(all_observed)
    return [eviction_of(pod) for pod in made]


async def test_what_exceeds_the_budget_waits_and_ends_once_after_a_release(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    cluster: Cluster,
) -> None:
    kube_nodes("budget-1")
    async with running(kubeconfig, database, tmp_path, LIMITS) as system:
        intents = await system.decide(*await bound_pods(system, make_pod, "budget-1", 4))
        causes = {f"scheduling/{intent.seq}" for intent in intents}
        rows = await system.until(lambda rows: len(intents_with(rows, "EvictionPaused")) == 2)
        await system.until(lambda rows: len(intents_with(rows, *OUTCOMES)) == 2)
        assert evicted_pods(cluster, namespace) == 2
        status = await koord_evictions(system, "status")
        assert (status["held_by"], status["evicted"], status["waiting"]) == ("", 2, 2)
        assert {each["intent"] for each in status["paused"]} == set(intents_with(rows, "EvictionPaused")) <= causes
        assert all(each["reason"] == "node budget-1: 2 evictions in 300 s" for each in status["paused"])
        # A restart changes nothing: what waits is in the log, and so is what was spent.
        await asyncio.to_thread(system.gateway.kill)
        await asyncio.to_thread(system.gateway.start)
        assert (await koord_evictions(system, "status"))["waiting"] == 2
        released = await koord_evictions(system, "release", "--reason", "drain", "--by", "ada")
        assert released["held_by"] == ""
        rows = await system.until(lambda rows: len(intents_with(rows, *OUTCOMES)) == 4)
        assert sorted(intents_with(rows, *OUTCOMES)) == sorted(causes)
        assert len(intents_with(rows, "EvictionPaused")) == 2
        assert evicted_pods(cluster, namespace) == 4
        assert (await koord_evictions(system, "status"))["waiting"] == 0


async def test_a_hold_stops_all_evictions_and_the_doctor_reports_it(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    cluster: Cluster,
) -> None:
    kube_nodes("hold-1", "hold-2")
    async with running(kubeconfig, database, tmp_path, LIMITS) as system:
        evictions = await bound_pods(system, make_pod, "hold-1", 1)
        held = await koord_evictions(system, "hold", "--reason", "checking", "--by", "ada")
        assert (held["held_by"], held["held_reason"]) == ("ada", "checking")
        await system.decide(*evictions)
        await system.until(lambda rows: intents_with(rows, "EvictionPaused"))
        assert evicted_pods(cluster, namespace) == 0
        assert system.gateway.env is not None
        endpoints = Endpoints(database, system.gateway.env["KOORD_NATS"])
        (finding,) = [one for one in await examine(endpoints, tmp_path) if one.area == "evictions"]
        assert (finding.severity, "held by ada: checking; 1 wait" in finding.what) == ("error", True)
        await koord_evictions(system, "release", "--reason", "fine")
        rows = await system.until(lambda rows: intents_with(rows, *OUTCOMES))
        assert intents_with(rows, "PodEvicted")
        assert evicted_pods(cluster, namespace) == 1


async def test_the_breaker_holds_all_evictions_when_many_wait(
    kubeconfig: Path,
    database: str,
    tmp_path: Path,
    make_pod: MakePod,
    namespace: str,
    kube_nodes: MakeNodes,
    cluster: Cluster,
) -> None:
    kube_nodes("breaker-1", "breaker-2")
    async with running(kubeconfig, database, tmp_path, LIMITS) as system:
        many = await bound_pods(system, make_pod, "breaker-1", 5)
        other = await bound_pods(system, make_pod, "breaker-2", 1)
        await system.decide(*many)
        await system.until(lambda rows: any(row.type.endswith(".EvictionsHeld.v1") for row in rows))
        await system.decide(*other)  # its node has budget
        await system.until(lambda rows: len(intents_with(rows, "EvictionPaused")) == 4)
        assert evicted_pods(cluster, namespace) == 2

        async def status() -> dict[str, Any]:
            return await koord_evictions(system, "status")

        found = await until(status, holds=lambda found: found["waiting"] == 4)
        assert (found["held_by"], found["held_reason"]) == ("breaker", "3 evictions wait for budget")
        await koord_evictions(system, "release", "--reason", "intended")
        rows = await system.until(lambda rows: len(intents_with(rows, *OUTCOMES)) >= 5)
        outcomes = intents_with(rows, *OUTCOMES)
        assert len(outcomes) == len(set(outcomes))
