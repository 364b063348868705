"""Invariants of PodMigrationJobs in random worlds: every job ends, no pod is evicted without a held place, no place is
left behind, no Strict gang is left below its minimum, and a restart at any point goes on as if there had been none.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.descheduler.migration.decide_migration import effective_facts
from shared.events import Event
from shared.events.intents import EvictionRequested, ObjectDesired
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
from tests.support.hypothesis_examples import examples
from tests.support.migration import migration_args
from tests.support.migration_world import World

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "decide",
                "decide",
                "gateway",
                "gateway",
                "no budget",
                "refuse",
                "schedule",
                "schedule here",
                "expire",
                "kubelets",
                "successor",
                "unready",
                "other takes",
                "abort",
                "delete job",
                "delete reservation",
                "delete pod",
                "restart",
                "minute",
                "later",
                "much later",
            )
        ),
        st.integers(0, 2),
        st.booleans(),
    ),
    max_size=25,
)
"""Steps: what happens, to which pod or job, and whether the descheduler decides afterwards."""


class CheckedWorld(World):
    """A world that checks each decision."""

    def decide(self) -> list[Event]:
        """Decides; an eviction needs a place that is held, on another node."""
        events = super().decide()
        for event in events:
            if isinstance(event, EvictionRequested):
                found = self.state.migration.eviction(event.pod_uid)
                assert found is not None
                if self.mode == "ReservationFirst":
                    status = self.objects[RESERVATIONS, found.request.job_uid]["status"]
                    assert status["phase"] == "Available"
                    assert status["nodeName"] != self.pods[event.pod].spec.node_name
            if isinstance(event, ObjectDesired) and event.body is None:
                waiting = [request for request in self.state.migration.evicted() if request.seq in self.open]
                kept = {name for one in waiting for name in (one.job_uid, one.job_uid.removeprefix("uid-"))}
                assert event.name not in kept, "neither a job nor its place goes while its eviction may be carried out"
        requested = {event.pod_uid for event in events if isinstance(event, EvictionRequested)}
        if requested and self.minimum:
            requested |= {request.pod_uid for request in self.state.migration.evicted()}
            stay = [pod for pod in self.pods.values() if pod.metadata.uid not in requested]
            assert sum(not pod.metadata.deletion_timestamp for pod in stay) + self._held() >= self.minimum
        for uid in requested:
            self._check_unit(uid)
        return events

    def _held(self) -> int:
        kinds = [body.get("status") or {} for (resource, _), body in self.objects.items() if resource == RESERVATIONS]
        return sum(status.get("phase") == "Available" for status in kinds)

    def _check_unit(self, pod_uid: str) -> None:
        """No member of a unit is evicted without the others."""
        state = self.state.migration
        found = state.eviction(pod_uid)
        unit = (
            None if found is None or not state.is_in_flight(found.request) else state.units.get(found.request.job_uid)
        )
        if unit is not None:
            assert all(state.has_evicted(uid) for uid in unit.jobs.values())

    def gateway(self, *, refuse: str = "", evicts: bool = True) -> None:
        """Carries out; while an eviction can be carried out its place exists, unless another client removed it."""
        for event in self.open.values():
            if evicts and isinstance(event, EvictionRequested) and event.pod in self.pods:
                found = self.state.migration.eviction(event.pod_uid)
                assert found is not None
                if self.mode == "ReservationFirst" and not self.removed:
                    assert (RESERVATIONS, found.request.job_uid) in self.objects
                jobs = {job.uid: job for job in effective_facts(self.state).jobs.values()}
                job = jobs.get(found.request.job_uid)
                assert job is None or job.status.phase != "Failed", "its job goes on, unless a user ended it"
        super().gateway(refuse=refuse, evicts=evicts)

    removed, mode, minimum = False, "", 0


def take(world: CheckedWorld, step: str, number: int) -> None:
    """One step of the world, where it is possible."""
    reservation, job = (RESERVATIONS, f"uid-j{number}"), (MIGRATION_JOBS, f"j{number}")
    status = world.objects.get(reservation, {}).get("status", {})
    key = f"default/web-{number}"
    match step:
        case "decide":
            world.decide()
        case "gateway":
            world.gateway()
        case "no budget":
            world.gateway(evicts=False)
        case "refuse":
            world.gateway(refuse="no")
        case "schedule" | "schedule here" if reservation in world.objects and not status:
            world.schedule(reservation[1], f"n{number}" if step == "schedule here" else "n9")
        case "expire" if status.get("phase") == "Available":
            world.reservation_ends(reservation[1], "Failed", "Expired")
        case "kubelets":
            world.kubelets_end_pods()
        case "successor" | "unready" if status.get("phase") == "Available" and key not in world.pods:
            world.successor(key, reservation[1], ready=step == "successor")
        case "other takes" if status.get("phase") == "Available":
            owners = [{"namespace": "default", "name": "web-8", "uid": "uid-web-8"}]
            world.reservation_ends(reservation[1], "Succeeded", "Succeeded", currentOwners=owners)
        case "abort" if job in world.objects:
            body = world.objects[job]
            world.put(*job, body | {"status": body.get("status", {}) | {"phase": "Aborted"}})
        case "delete job" if job in world.objects:
            world.remove(*job)
        case "delete reservation" if reservation in world.objects:
            world.removed = True
            world.remove(*reservation)
        case "delete pod" if key in world.pods:
            world.remove_pod(key)
        case "restart":
            world.restart()
        case "minute" | "later" | "much later":
            world.pass_time({"minute": 60, "later": 4, "much later": 1800}[step])


IN_FLIGHT = (10, "ReservationFirst")
"""A place is held, and an eviction waits for the gateway."""
SCHEDULED = (9, "ReservationFirst")


@settings(max_examples=examples(40), deadline=None)
@given(
    st.one_of(
        st.just(IN_FLIGHT),
        st.tuples(st.integers(0, 10), st.sampled_from(("ReservationFirst", "EvictDirectly"))),
    ),
    STEPS,
    st.sampled_from(("2m", None)),
    st.sampled_from((0, 8, 9, 10)),
)
# Each of the guards of evictions that the gateway may still carry out, and of gangs, is needed by one of these:
@example(IN_FLIGHT, [("minute", 0, False), ("minute", 0, True)], "2m", 0)
@example(IN_FLIGHT, [("delete reservation", 0, True)], None, 0)
@example(IN_FLIGHT, [("much later", 0, True)], None, 0)
@example(IN_FLIGHT, [("abort", 0, True)], None, 0)
@example(IN_FLIGHT, [("delete job", 0, True)], None, 0)
@example(SCHEDULED, [("delete pod", 1, True), ("later", 0, True)], None, 9)
@example((0, "EvictDirectly"), [("gateway", 0, True), ("gateway", 0, True), ("later", 0, True)] * 3, None, 9)
def test_every_job_ends_and_leaves_nothing_behind(
    begin: tuple[int, str], steps: list[tuple[str, int, bool]], ttl: str | None, minimum: int
) -> None:
    """The world begins with so many steps of the way that jobs take where nothing goes wrong.

    Args:
        minimum: of the gang that the pods are; 0: they are none.
    """
    along, mode = begin
    limits = {"maxMigratingPerWorkload": 5, "maxUnavailablePerWorkload": 5} if minimum else {}
    world = CheckedWorld(migration_args(maxMigratingPerNode=0, evictQPS=100, **limits))
    world.mode, world.minimum = mode, minimum
    world.workload("web", 10)
    if minimum:
        world.make_gang("web", minimum)
    for number in range(3):
        world.request(f"j{number}", f"web-{number}", mode=mode, ttl=ttl)
    way = [("decide", 0), ("gateway", 0)] * 3 + [("schedule", n) for n in range(3)] + [("decide", 0)]
    for step, number in way[:along]:
        take(world, step, number)
    for step, number, decides in steps:
        take(world, step, number)
        if decides:
            world.decide()
    for _ in range(40):  # nobody does anything but the gateway, which refuses or not
        world.pass_time(60)
        world.decide()
        world.gateway()
        world.kubelets_end_pods()
    assert not [key for key in world.objects if key[0] == MIGRATION_JOBS]
    assert not [key for key in world.objects if key[0] == RESERVATIONS]
    assert (world.state.migration.passed, world.state.migration.made) == ({}, {})
    assert world.decide() == []
    world.restart()
    assert world.decide() == []
