"""Invariants of PodMigrationJobs in random worlds: every job ends, no pod is evicted without a held place, no place is
left behind, and a restart at any point goes on as if there had been none.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.events import Event
from shared.events.intents import EvictionRequested
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS
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
            )
        ),
        st.integers(0, 2),
    ),
    max_size=25,
)


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
        return events

    def gateway(self, *, refuse: str = "", evicts: bool = True) -> None:
        """Carries out; while an eviction can be carried out its place exists, unless another client removed it."""
        for event in self.open.values():
            if evicts and isinstance(event, EvictionRequested) and event.pod in self.pods:
                found = self.state.migration.eviction(event.pod_uid)
                assert found is not None
                if self.mode == "ReservationFirst" and not self.removed:
                    assert (RESERVATIONS, found.request.job_uid) in self.objects
        super().gateway(refuse=refuse, evicts=evicts)

    removed, mode = False, ""


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
        case "minute" | "later":
            world.pass_time(60 if step == "minute" else 4)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), STEPS, st.sampled_from(("ReservationFirst", "EvictDirectly")), st.sampled_from(("2m", None)))
def test_every_job_ends_and_leaves_nothing_behind(
    along: int, steps: list[tuple[str, int]], mode: str, ttl: str | None
) -> None:
    """The world begins with so many steps of the way that jobs take where nothing goes wrong."""
    world = CheckedWorld(migration_args(maxMigratingPerNode=0, evictQPS=100))
    world.mode = mode
    world.workload("web", 10)
    for number in range(3):
        world.request(f"j{number}", f"web-{number}", mode=mode, ttl=ttl)
    way = [("decide", 0), ("gateway", 0)] * 3 + [("schedule", n) for n in range(3)] + [("decide", 0)]
    for step, number in (*way[: 2 * along], *steps):
        take(world, step, number)
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
