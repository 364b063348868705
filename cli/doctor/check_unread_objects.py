"""Checks that gangs, Reservations and devices are read by the profile in force, and the annotations of gangs and nodes."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from cli.doctor.finding import Finding
from cli.node.ignored_settings_of_node import ignored_settings_of_node
from cli.simulated_cluster import edit_advice
from services.scheduler.explain.gang_status import ignored_settings
from services.scheduler.explain.impossible_requests import NO_NODES, missing_quota
from services.scheduler.explain.invalid_reservations import RejectedReservation
from services.scheduler.explain.objects_without_plugin import UnreadObjects
from services.scheduler.explain.waiting_order_config import QueueRules
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import closing_label
from services.scheduler.state.ignored_pod_settings import ignored_settings_of
from services.scheduler.state.scheduler_state import SchedulerState
from shared.first_names import first_names

NAMED = 3


def about_unread_objects(found: Iterable[UnreadObjects]) -> Iterator[Finding]:
    """Names the objects that have no effect, and the plugin that their profile lacks."""
    for each in found:
        count = len(each.names)
        times_of = f"{count} {each.kind}{'' if count == 1 else 's'}"
        lacking = f"profile{'s' if len(each.profiles) > 1 else ''} {', '.join(each.profiles)}"
        yield Finding(
            "warning",
            "configuration",
            f"{times_of} ({first_names(each.names, NAMED)}): {each.effect}, since {lacking} "
            f"{'does' if len(each.profiles) == 1 else 'do'} not enable {each.plugin}",
            f"enable {each.plugin} as k8s/examples/scheduler-config-loadaware.yaml does; a configuration replaces the default one",
        )


def about_missing_nodes(view: SchedulerState, *, simulated: bool = False) -> Iterator[Finding]:
    """Names a cluster without nodes in which pods wait that were tried."""
    tried = () if view.nodes else (each for each in view.pods.values() if each.attempts and not each.ended)
    waiting = [each for each in tried if each.pod_class is None or not each.pod_class.reserves]
    if waiting:
        what = f"{NO_NODES}, and {len(waiting)} pod{' waits' if len(waiting) == 1 else 's wait'} for one"
        remedy = "add nodes: KOORD_SIMULATOR_NODES, or `koord dev apply`" if simulated else "join nodes to the cluster"
        yield Finding("warning", "nodes", what, remedy)


def about_rejected_reservations(found: Sequence[RejectedReservation], *, simulated: bool = False) -> Iterator[Finding]:
    """Names the Reservations that cannot be placed, or that no pod may use, as they are written."""
    for name, _, _, node, problem in found[:NAMED]:
        state = f", on {node}, is for no pod" if node else " is not placed"
        remedy = f"correct it: {edit_advice('reservation', name, simulated=simulated)}"
        yield Finding("warning", "configuration", f"Reservation {name}{state}: {problem}", remedy)
    if (more := len(found) - NAMED) > 0:
        what = f"{more} more Reservation{' is' if more == 1 else 's are'} rejected"
        yield Finding("warning", "configuration", what, "`koord get reservations -o wide` has what is wrong with each")


def about_ignored_pod_settings(
    view: SchedulerState, schedulers: Collection[str], *, simulated: bool = False
) -> Iterator[Finding]:
    """Names the labels and annotations of pods of these schedulers that have no effect, and fields of them: they cannot
    be read, are misspelt or unknown.
    """
    pods_by_fault: dict[str, list[str]] = {}
    for record in view.pods.values():
        if record.pod_class is not None and record.pod_class.scheduler in schedulers and not record.ended:
            for fault in (*ignored_settings_of(record.pod_class), *missing_quota(view, record.pod_class)):
                pods_by_fault.setdefault(fault, []).append(record.name)
    for fault, names in sorted(pods_by_fault.items())[:NAMED]:
        what = f"{len(names)} pod{'' if len(names) == 1 else 's'} ({first_names(sorted(names), NAMED)}): {fault}"
        remedy = "correct it where these pods are made: in their workload's template"
        if simulated:
            remedy = f"correct it: {_edit_pod(min(names), simulated=simulated)}"
        yield Finding("warning", "configuration", what, remedy)
    if (more := len(pods_by_fault) - NAMED) > 0:
        what = f"{more} more labels or annotations of pods are ignored"
        yield Finding("warning", "configuration", what, "`koord why pod` names those of a pod")


def about_ignored_settings(view: SchedulerState, rules: QueueRules, *, simulated: bool = False) -> Iterator[Finding]:
    """Names the settings of gangs and nodes that have no effect: they cannot be read, are misspelt or unknown."""
    for gang in sorted(view.gangs.gangs):
        for fault in ignored_settings(view, rules, gang):
            remedy = f"correct it: {_edit_gang(view, gang, simulated=simulated)}"
            yield Finding("warning", "configuration", f"gang {gang}: {fault}", remedy)
    for name, record in sorted(view.nodes.items()):
        faults = (*ignored_settings_of_node(record.node), closing_label(record.node.metadata.labels or {}))
        for fault in filter(None, faults):
            remedy = f"correct it: {edit_advice('node', name, simulated=simulated)}"
            yield Finding("warning", "configuration", f"node {name}: {fault}", remedy)


def _edit_gang(view: SchedulerState, gang: str, *, simulated: bool) -> str:
    """Returns the command that changes the settings of a gang: on its PodGroup, or on one of its pods."""
    namespace, _, name = gang.partition("/")
    if view.gangs.gangs[gang].has_pod_group:
        return edit_advice("podgroup", name, namespace, simulated=simulated)
    members = sorted(view.pods[uid].name for uid in view.gangs.gangs[gang].members if uid in view.pods)
    return _edit_pod(members[0], simulated=simulated) if members else "on its pods"


def _edit_pod(pod: str, *, simulated: bool) -> str:
    namespace, _, name = pod.partition("/")
    return edit_advice("pod", name, namespace, simulated=simulated)
