"""Checks that gangs, Reservations and devices are read by the profile in force, and the annotations of gangs and nodes."""

from collections.abc import Iterable, Iterator

from cli.doctor.finding import Finding
from services.scheduler.explain.gang_status import ignored_settings
from services.scheduler.explain.ignored_node_annotations import ignored_annotations
from services.scheduler.explain.objects_without_plugin import UnreadObjects
from services.scheduler.explain.waiting_order_config import QueueRules
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


def about_ignored_settings(view: SchedulerState, rules: QueueRules) -> Iterator[Finding]:
    """Names the settings of gangs and nodes that are ignored since they cannot be read."""
    for gang in sorted(view.gangs.gangs):
        for fault in ignored_settings(view, rules, gang):
            source = "its PodGroup" if view.gangs.gangs[gang].has_pod_group else "its pods"
            yield Finding("warning", "configuration", f"gang {gang}: {fault}", f"correct it on {source}")
    for name, record in sorted(view.nodes.items()):
        for fault in ignored_annotations(record.node):
            yield Finding("warning", "configuration", f"node {name}: {fault}", f"correct it: kubectl edit node {name}")
