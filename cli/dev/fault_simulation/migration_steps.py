"""The steps of moves: a workload begins, clients create jobs, operators drain nodes, and people delete what holds places."""

from collections.abc import Callable, Mapping

from cli.dev.fault_simulation import migrations
from cli.dev.fault_simulation.cluster_objects import NAMESPACE
from cli.dev.fault_simulation.plan_migrations import ADD
from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.workload_controller import owner_of
from cli.dev.fault_simulation.world import World
from services.descheduler.migration.job_reservation import job_of
from shared.kube.resource_names import MIGRATION_JOBS, RESERVATIONS


def _add(world: World, step: Step) -> None:
    if f"{NAMESPACE}/{migrations.WORKLOAD}" not in world.api.objects[migrations.REPLICA_SETS]:
        world.api.create(migrations.REPLICA_SETS, migrations.replica_set(step.number))
        if step.what:
            second = migrations.replica_set(step.number, migrations.SECOND_WORKLOAD)
            world.api.create(migrations.REPLICA_SETS, second)


def _migrate_pod(world: World, step: Step) -> None:
    """Lets a client request that a bound pod be moved."""
    bound = [pod for pod in world.api.objects["pods"].values() if pod["spec"].get("nodeName")]
    pods = [pod for pod in bound if step.what == "any" or owner_of(pod)]
    if pods and MIGRATION_JOBS in world.api.objects and step.target not in world.api.objects[MIGRATION_JOBS]:
        world.api.create(MIGRATION_JOBS, migrations.migration_job(step.target, pods[step.number % len(pods)]))


def _migrate_gang(world: World, step: Step) -> None:
    """Lets a client request that several bound members of the workload's gang be moved."""
    pods = [pod for pod in world.api.objects["pods"].values() if pod["spec"].get("nodeName") and owner_of(pod)]
    for number, pod in enumerate(pods[: step.number]):
        name = f"{step.target}-{number}"
        if MIGRATION_JOBS in world.api.objects and name not in world.api.objects[MIGRATION_JOBS]:
            world.api.create(MIGRATION_JOBS, migrations.migration_job(name, pod))


def _drain(world: World, step: Step) -> None:
    world.begin(world.operator.process, world.operator.drain, "start", step.target)


def _cancel_drain(world: World, step: Step) -> None:
    world.begin(world.operator.process, world.operator.drain, "cancel", step.target)


def _uncordon(world: World, step: Step) -> None:
    node = world.api.objects["nodes"].get(step.target)
    if node is not None and node["spec"].get("unschedulable"):
        spec = {name: value for name, value in node["spec"].items() if name != "unschedulable"}
        world.api.put("nodes", step.target, {**node, "spec": spec})


def _delete_place(world: World, _step: Step) -> None:
    """Deletes a Reservation that holds the place of a pod."""
    for name, body in world.api.objects[RESERVATIONS].items():
        if job_of(body):
            world.api.delete(RESERVATIONS, name)
            return


def _delete_job(world: World, _step: Step) -> None:
    for name in world.api.objects.get(MIGRATION_JOBS, {}):
        world.api.delete(MIGRATION_JOBS, name)
        return


MIGRATION_STEPS: Mapping[str, Callable[[World, Step], None]] = {
    ADD: _add,
    "migrate-pod": _migrate_pod,
    "migrate-gang": _migrate_gang,
    "drain-node": _drain,
    "cancel-drain": _cancel_drain,
    "uncordon": _uncordon,
    "delete-place": _delete_place,
    "delete-job": _delete_job,
}
"""Name -> what it does."""
