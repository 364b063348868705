"""A write that the API server does not take is repeated only while no newer desired state has replaced it."""

import asyncio

from cli.dev.fault_simulation import cluster_objects
from cli.dev.fault_simulation.api_transport import ApiTransport, MemoryConnections
from cli.dev.fault_simulation.memory_api import ApiServer
from cli.dev.fault_simulation.virtual_loop import Process
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from shared.events import Draft
from shared.events.cluster import DesiredStateApplied, DesiredStateSuperseded, NodeObserved
from shared.events.intents import FieldsDesired
from tests.support.gateway_objects import Log, kept, node, state_after

SETTINGS = GatewaySettings(timeout_s=1, deadline_s=5, tries=50, backoff_s=0.05, backoff_max_s=0.1)


async def test_the_cordon_of_a_cancelled_drain_is_not_written_when_the_api_server_is_back() -> None:
    server = ApiServer(1, lambda: 0)
    transport = ApiTransport(server, 1)
    server.create("nodes", cluster_objects.node("n1"))
    log = Log()
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))

    def desire(patch: dict[str, object]) -> FieldsDesired:
        return FieldsDesired(resource="nodes", name="n1", fields="cordon", patch=patch)

    cordon = log.append("descheduling", desire({"spec": {"unschedulable": True}}))
    state = state_after(log.in_order([]))
    ended: list[Draft] = []

    async def check_lock() -> None:
        pass

    api = KubeApi(connections=MemoryConnections(transport, Process("gateway")), timeout_s=SETTINGS.timeout_s)
    async with api, asyncio.TaskGroup() as group:
        runner = EffectRunner(
            api,
            SETTINGS,
            DriftTracker(),
            now_ns=lambda: 1,
            check_lock=check_lock,
            append=ended.append,
            count=lambda _intent, _outcome: None,
            group=group,
        )
        transport.up = False
        await runner.start(state)
        await asyncio.sleep(0.2)
        withdrawn = log.append("descheduling", desire({}))
        state.apply(log.contexts["descheduling"][-1])
        transport.up = True
        while len(ended) < 2:
            await asyncio.sleep(0.01)
            await runner.start(state)
    outcomes = {draft.cause: type(draft.event) for draft in ended}
    assert outcomes == {cordon: DesiredStateSuperseded, withdrawn: DesiredStateApplied}
    assert not server.find("nodes", "n1")["spec"].get("unschedulable")
