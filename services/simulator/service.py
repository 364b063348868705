"""The simulator's shell: wait for intents, requests and the clock, take one step, append it, answer.

It writes the context `cluster`, as the gateway does; of the two one runs.
"""

import asyncio
from functools import partial

from services.simulator.api import requests
from services.simulator.api.api_errors import Refused
from services.simulator.api.request_queue import Desk
from services.simulator.api.requests import Request
from services.simulator.clock import Clock
from services.simulator.decide import Due, Step, decide, is_begun, next_arrival_ns
from services.simulator.manifest import CHANGES, MANIFEST, SUBJECT
from services.simulator.settings import SimulatorSettings
from services.simulator.state import ANY_INTENTS, INTENTS, SimulatorState
from services.simulator.timers import Timers
from shared.events.cluster import ENDED_BY, OBSERVATIONS, OUTCOMES
from shared.events.log import WriterStarted
from shared.runtime.service import Runtime, Service

REQUEST_BYTES = 512 * 1024
"""JSON of the requests of one step, about a thousand pods: a step must not hold the loop for long."""

PODS_DUE, REPORTS_DUE = 1_000, 64
"""What the timers may add to one step."""

LONGEST_WAIT_S = 60.0


async def lead(desk: Desk, runtime: Runtime) -> None:
    """Take steps until the service drains."""
    settings: SimulatorSettings = runtime.settings
    clock = Clock(wall_ns=runtime.now_ns(), seen_ns=runtime.state.now_ns, speed=settings.speed)
    timers = Timers(settings)
    timers.load(runtime.state)
    heard: asyncio.Task[bool] | None = None
    try:
        while not runtime.draining.is_set():
            asked = desk.take(REQUEST_BYTES)
            now_ns = clock.now_ns(runtime.now_ns())
            due = Due(timers.pods_due(now_ns, PODS_DUE), timers.reports_due(now_ns, REPORTS_DUE))
            step = decide(runtime.state, [request for request, _ in asked], due, settings, now_ns)
            await commit(runtime, step, timers, now_ns)
            for (_, answer), said in zip(asked, step.answers, strict=True):
                if not answer.done():
                    answer.set_result(said)
            if step.drafts:
                continue  # look again before waiting: more may have come meanwhile
            heard = await rest(runtime, desk, clock, timers, heard)
    finally:
        if heard:
            heard.cancel()


async def commit(runtime: Runtime, step: Step, timers: Timers, now_ns: int) -> None:
    """Append a step, if it changes anything; else make sure that answers still rest on a held lock."""
    if step.drafts:
        await runtime.append(step.drafts, now_ns=now_ns)
        for draft in step.drafts:
            timers.learn(draft.event)
    elif step.answers:
        await runtime.check_lock()


async def rest(
    runtime: Runtime, desk: Desk, clock: Clock, timers: Timers, heard: asyncio.Task[bool] | None
) -> asyncio.Task[bool] | None:
    """Wait for an intent, a request, or the next thing that is due. In virtual time a quiet while ends with a jump to it.

    Args:
        runtime: of the service.
        desk: where requests come in.
        clock: moved on by a jump.
        timers: what is due.
        heard: the wait for the State's next change that an earlier rest has left, if it has.

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
    heard = heard or asyncio.create_task(runtime.changed(LONGEST_WAIT_S))
    came = asyncio.create_task(desk.came())
    await asyncio.wait({heard, came}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    quiet = not heard.done() and not came.done()
    came.cancel()
    if settings.virtual and quiet and next_ns is not None:
        clock.jump(next_ns, runtime.now_ns())
    return None if heard.done() else heard


async def change(desk: Desk, verb: str, runtime: Runtime, data: bytes) -> bytes:
    """Answer a request that changes the cluster."""
    if not runtime.writer.epoch:
        return requests.refused(Refused(503, "ServiceUnavailable", "this replica of the simulator does not lead"))
    return await desk.ask(Request(verb, data))


async def get(runtime: Runtime, data: bytes) -> bytes:
    """Answer with an object."""
    return requests.get(runtime.state, data)


async def list_(runtime: Runtime, data: bytes) -> bytes:
    """Answer with a page of objects."""
    return requests.list_(runtime.state, data)


def simulator() -> Service:
    """The declaration, with a desk of its own."""
    desk = Desk()
    return Service(
        manifest=MANIFEST,
        follows={
            "cluster": (*OBSERVATIONS, *OUTCOMES),
            "scheduling": INTENTS,
            "quota": ANY_INTENTS,
            "slo": ANY_INTENTS,
            "metrics-*": ANY_INTENTS,
            "nodes-*": ANY_INTENTS,
            "audit": ANY_INTENTS,
        },
        emits=(*OBSERVATIONS, *OUTCOMES, WriterStarted),
        settings=SimulatorSettings,
        new_state=SimulatorState,
        lead=partial(lead, desk),
        serves={f"{SUBJECT}.{verb}": partial(change, desk, verb) for verb in CHANGES}
        | {f"{SUBJECT}.get": get, f"{SUBJECT}.list": list_},
        carries_forward=ENDED_BY,
    )


SERVICE = simulator()
