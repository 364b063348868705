"""While effects are stopped every command that reads the log prints it, once, also where its answer is an error."""

import asyncio
import time

from click.testing import CliRunner

from cli.embedded import EmbeddedNats
from cli.main import koord
from cli.processes.free_ports import free_port
from shared.events import Draft
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.runtime import health
from shared.runtime.health import Metrics
from shared.runtime.status import Status
from tests.integration.cli.recorded_log import append
from tests.support.pods import kept_pod, observed

HALT = "effects are stopped since 2026-11-28T08:12:41Z: the list of pods lacks 6 of 6 that the log has"
QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
VIEWS = (
    "explain quota a",
    "explain pod ns/x",
    "explain node n1",
    "whatif quota --set a.max.cpu=20",
    "verify quotas",
    "events --last 1",
    "why eviction ns/nope",
    "why quota a",
    "devices",
    "get nodes",
    "describe node n1",
)


async def test_every_view_prints_once_that_effects_are_stopped(database: str, nats: EmbeddedNats) -> None:
    raw = {"metadata": {"name": "a", "namespace": "q"}, "spec": {"min": {"cpu": "5"}, "max": {"cpu": "10"}}}
    node = Node(metadata=Metadata(name="n1"), status=NodeStatus(allocatable={"cpu": "10"}))
    drafts = [
        Draft(NodeObserved(node="n1", object=node)),
        Draft(ObjectObserved(resource=QUOTAS, name="q/a", uid="a", object=raw)),
        Draft(observed(kept_pod("x", namespace="ns", requests={"cpu": "1"}))),
    ]
    await append(database, "cluster", drafts, time.time_ns())
    address = f"127.0.0.1:{free_port()}"
    status = Status("gateway", "leading", 1, 0, 0.0, 0, {}, bus=True, halted=(HALT,))
    pages = await health.serve(address, lambda: status, Metrics())
    environment = {
        "KOORD_POSTGRES": database,
        "KOORD_NATS": nats.url,
        "KOORD_STATUSZ": f"gateway=http://{address}",
    }
    printed = {}
    for view in VIEWS:
        result = await asyncio.to_thread(CliRunner().invoke, koord, view.split(), env=environment)
        printed[view] = " ".join(result.stderr.split()).count(HALT)
    await pages.cleanup()
    assert printed == dict.fromkeys(VIEWS, 1)
