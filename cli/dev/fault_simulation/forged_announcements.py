"""Announcements that no writer sends: batches and beacons of events that are in no log."""

import msgspec

from cli.dev.fault_simulation.memory_api import Body, key_of
from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.world import World
from shared.events.intents import EvictionRequested
from shared.log import announcements
from shared.log.announcements import Batch, Beacon, Entry, batch_subject, beacon_subject
from shared.log.hash_chain import Chain

FORGER = "forger"
EPOCH = 2**50
SUBJECT_OF_FORGER = "metrics-0"
"""Context whose subject a forger may use by its login."""


def forge(world: World, step: Step) -> None:
    """Publishes a forged announcement of the context `step.target`.

    `batch-of-another-context`: on the subject of another context, as the forger's login allows. `batch`: on the subject
    of the context itself, continuing its chain of digests. `beacon`: a head far beyond the log's, of a later epoch.
    """
    head = world.postgres.contexts[step.target].head
    if step.what == "beacon":
        beacon = Beacon(step.target, EPOCH, head.seq + 1_000, bytes(32))
        _publish(world, beacon_subject(step.target), announcements.encode(beacon))
        return
    pod = any_bound_pod(world)
    if pod is None:
        return
    metadata = pod["metadata"]
    event = EvictionRequested(pod=key_of(metadata), pod_uid=metadata["uid"], reason="forged")
    kind, data, at_us = event.type_name(), msgspec.json.encode(event), world.postgres.clock_us()
    chain = Chain(step.target, head.digest, at_us=at_us, actor=FORGER)
    digest = chain.add(head.seq + 1, kind, event.SCHEMA, event.key, None, None, data)
    entry = Entry(kind, None, data, digest, event.SCHEMA, event.key)
    batch = Batch(step.target, EPOCH, head.seq + 1, head.digest, at_us, [entry], FORGER)
    subject = SUBJECT_OF_FORGER if step.what == "batch-of-another-context" else step.target
    _publish(world, batch_subject(subject), announcements.encode(batch))


def _publish(world: World, subject: str, data: bytes) -> None:
    world.broker.publish(world.loop.outside, subject, data)


def any_bound_pod(world: World) -> Body | None:
    """Returns a pod that is bound; None while there is none."""
    return next((pod for pod in world.api.objects["pods"].values() if pod["spec"].get("nodeName")), None)
