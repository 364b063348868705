"""The simulator's service: waits for intents, requests and the clock, takes one step, appends it, and responds.

It writes the context `cluster`, as the gateway does; only one of the two runs.
"""

import asyncio
from functools import partial

from services.simulator.api import request_execution
from services.simulator.api.api_errors import ApiError
from services.simulator.api.request_execution import Request
from services.simulator.api.requests_waiting_for_step import RequestQueue
from services.simulator.clock import Clock
from services.simulator.decide import DueObjects, Step, decide, is_begun, next_arrival_ns
from services.simulator.kubelet.timers import Timers
from services.simulator.service_manifest import CHANGES, MANIFEST, SUBJECT
from services.simulator.settings import SimulatorSettings
from services.simulator.state import SimulatorState
from shared.events import Draft
from shared.events.cluster import OBSERVATIONS, OUTCOMES, ClusterIdentified
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported
from shared.kube.cluster_identity import SIMULATED, first_fact
from shared.runtime.intent_rights import INTENTS
from shared.runtime.service import Runtime, Service

REQUEST_BYTES = 512 * 1024
"""JSON of the requests of one step, about a thousand pods: a step must not block the event loop for long."""

PODS_DUE, REPORTS_DUE = 1_000, 64
"""Upper bounds of the pods and nodes that the timers add to one step."""

LONGEST_WAIT_S = 60.0


async def lead(queue: RequestQueue, runtime: Runtime) -> None:
    """Takes steps until the service drains."""
    settings: SimulatorSettings = runtime.settings
    clock = Clock(wall_ns=runtime.now_ns(), seen_ns=runtime.state.now_ns, speed=settings.speed)
    await record_cluster(runtime, clock)
    timers = Timers(settings)
    timers.load(runtime.state)
    state_change: asyncio.Task[bool] | None = None
    try:
        while not runtime.draining.is_set():
            requested = queue.take(REQUEST_BYTES)
            now_ns = clock.now_ns(runtime.now_ns())
            due = DueObjects(timers.pods_due(now_ns, PODS_DUE), timers.reports_due(now_ns, REPORTS_DUE))
            step = decide(runtime.state, [request for request, _ in requested], due, settings, now_ns)
            await commit(runtime, step, timers, now_ns)
            for (_, waiting), response in zip(requested, step.responses, strict=True):
                if not waiting.done():
                    waiting.set_result(response)
            if step.drafts:
                continue  # more requests may have arrived during the commit
            state_change = await wait_for_work(runtime, queue, clock, timers, state_change)
    finally:
        if state_change:
            state_change.cancel()


async def record_cluster(runtime: Runtime, clock: Clock) -> None:
    """Records the simulated cluster in a new log.

    Raises:
        WrongCluster: the log describes a cluster of its own.
    """
    recorded = runtime.state.cluster
    # The simulated cluster is that of the log, whatever the seed: only a cluster outside of the log differs from it.
    found = recorded if recorded.startswith(SIMULATED) else f"{SIMULATED}{runtime.settings.seed}"
    event = first_fact(recorded, found, "the one without a kubeconfig")
    if event is not None:
        await runtime.append([Draft(event)], now_ns=clock.now_ns(runtime.now_ns()))


async def commit(runtime: Runtime, step: Step, timers: Timers, now_ns: int) -> None:
    """Appends a step, if it changes anything; else checks that this replica is still the writer before it responds."""
    if step.drafts:
        await runtime.append(step.drafts, now_ns=now_ns)
        for draft in step.drafts:
            timers.learn(draft.event)
    elif step.responses:
        await runtime.check_lock()


async def wait_for_work(
    runtime: Runtime, queue: RequestQueue, clock: Clock, timers: Timers, state_change: asyncio.Task[bool] | None
) -> asyncio.Task[bool] | None:
    """Waits for an intent, a request, or the next timer. In virtual time, an idle interval ends with a jump to that
    timer.

    Args:
        runtime: of the service.
        queue: requests of clients.
        clock: advanced by a jump.
        timers: the next instant of each pod and node.
        state_change: the wait for the State's next change that an earlier call has left, if any.

    Returns:
        The wait for the State's next change, if it goes on.
    """
    settings: SimulatorSettings = runtime.settings
    wall_ns = runtime.now_ns()
    arrival_ns = next_arrival_ns(runtime.state, settings) if is_begun(runtime.state) else None
    next_ns = min((at_ns for at_ns in (timers.next_ns, arrival_ns) if at_ns is not None), default=None)
    wait_s = LONGEST_WAIT_S if next_ns is None else min(LONGEST_WAIT_S, clock.wait_s(next_ns, wall_ns))
    if settings.virtual:
        wait_s = min(wait_s, settings.debounce_s)
    state_change = state_change or asyncio.create_task(runtime.changed(LONGEST_WAIT_S))
    arrived = asyncio.create_task(queue.arrived())
    await asyncio.wait({state_change, arrived}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    idle = not state_change.done() and not arrived.done()
    arrived.cancel()
    if settings.virtual and idle and next_ns is not None:
        clock.jump(next_ns, runtime.now_ns())
    return None if state_change.done() else state_change


async def change(queue: RequestQueue, verb: str, runtime: Runtime, data: bytes) -> bytes:
    """Responds to a request that changes the cluster."""
    if not runtime.writer.epoch:
        return request_execution.error_response(
            ApiError(
                503,
                "ServiceUnavailable",
                "this replica of the simulator does not lead: it starts, or another one leads; try again in some seconds",
            )
        )
    return await queue.submit(Request(verb, data))


async def get(runtime: Runtime, data: bytes) -> bytes:
    """Responds with an object."""
    return request_execution.get(runtime.state, data)


async def list_(runtime: Runtime, data: bytes) -> bytes:
    """Responds with a page of objects."""
    return request_execution.list_(runtime.state, data)


def simulator() -> Service:
    """Declares the service, with a request queue of its own."""
    queue = RequestQueue()
    return Service(
        manifest=MANIFEST,
        follows={
            "cluster": (*OBSERVATIONS, *OUTCOMES, ClusterIdentified),
            "scheduling": INTENTS,
            "quota": INTENTS,
            "slo": INTENTS,
            "descheduling": INTENTS,
            "metrics-*": (*INTENTS, NodeReported),
            "nodes-*": INTENTS,
            "devices-*": INTENTS,
            "audit": INTENTS,
        },
        emits=(*OBSERVATIONS, *OUTCOMES, ClusterIdentified, WriterStarted),
        settings=SimulatorSettings,
        new_state=SimulatorState,
        lead=partial(lead, queue),
        serves={f"{SUBJECT}.{verb}": partial(change, queue, verb) for verb in CHANGES}
        | {f"{SUBJECT}.get": get, f"{SUBJECT}.list": list_},
    )


SERVICE = simulator()
