"""Action ingest publishes a node's pods to its agent, and turns the agent's eviction requests into intents."""

import time
from pathlib import Path

from cli.embedded import EmbeddedNats
from cli.supervisor.supervisor import Spec
from shared.agents import actions, node_pods, subjects
from shared.agents.actions import ActionReport, EvictionRequested, PodsRequested
from shared.agents.node_pods import NodePods
from shared.events import intents
from shared.events.cluster import NodeObserved, PodDeleted, PodObserved
from tests.support.ingest_process import stage
from tests.support.scheduling_world import node, pod
from tests.support.waiting import until

SPECS = (Spec("action-ingest", "action-ingest"),)


async def test_a_requesting_agent_receives_its_pods_and_each_change(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, specs=SPECS) as on:
        received: list[NodePods] = []
        await on.bus.subscribe(
            subjects.subject("n1", subjects.PODS), lambda data: received.append(node_pods.decode(data, "n1"))
        )

        async def names() -> list[str]:
            return [one.metadata.name for one in received[-1].pods] if received else ["nothing received"]

        where = subjects.subject("n1", subjects.ACTION)
        pods_request = ActionReport("n1", "b", 1, time.time_ns(), PodsRequested())
        assert (await on.send(where, actions.encode(pods_request))).accepted
        await until(names, holds=lambda found: found == [])
        await on.observe(
            NodeObserved(node="n1", object=node("n1")),
            PodObserved(pod="d/p", pod_uid="u", object=pod("p", on="n1")),
            PodObserved(pod="d/q", pod_uid="v", object=pod("q", on="n2")),
        )
        await until(names, holds=lambda found: found == ["p"])
        assert received[-1].object is not None
        eviction_request = ActionReport("n1", "b", 2, time.time_ns(), EvictionRequested("u", "memory is short"))
        assert (await on.send(where, actions.encode(eviction_request))).accepted
        evictions = await on.events("nodes-0", intents.EvictionRequested)
        assert [(one.pod, one.reason) for one in evictions if isinstance(one, intents.EvictionRequested)] == [
            ("d/p", "node n1: memory is short")
        ]
        await on.observe(PodDeleted(pod="d/p", pod_uid="u"))
        await until(names, holds=lambda found: found == [])
        positions = [one.position for one in received]
        assert positions == sorted(positions)
