"""Names ConfigMaps that have the name of one that this system reads, in a namespace in which nothing reads it."""

from collections.abc import Collection, Iterator, Sequence

from cli.doctor.finding import Finding
from cli.simulated_cluster import advice
from services.descheduler.service_manifest import CONFIG_MAP as DESCHEDULER
from services.scheduler.service_manifest import CONFIG_MAP as SCHEDULER
from services.slo_controller.service_manifest import CONFIG_MAP as SLO
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.log.admin.newest_events import newest_of_keys
from shared.log.database import Database

CONFIG_MAPS = (SCHEDULER, SLO, DESCHEDULER)
"""`namespace/name` of each ConfigMap that a service reads."""
USUAL = ("default", "kube-system")
"""Namespaces that are looked at beside those of pods: `default` is that of a manifest that names none."""


async def misplaced_configs(database: Database, namespaces: Collection[str]) -> list[tuple[str, str]]:
    """Returns `namespace/name` of each misplaced ConfigMap, and that of the one that is meant.

    On a cluster the gateway reads the ConfigMaps of its configuration's namespace alone, so the log has no others.

    Args:
        namespaces: in which they are searched, beside the usual ones.
    """
    meant = {
        f"{namespace}/{one.partition('/')[2]}": one
        for one in CONFIG_MAPS
        for namespace in {*namespaces, *USUAL} - {one.partition("/")[0]}
    }
    found = await newest_of_keys(database, "cluster", [ObjectObserved, ObjectDeleted], meant)
    events = [one.record.event for one in found]
    return [
        (event.name, meant[event.name])
        for event in events
        if isinstance(event, ObjectObserved) and event.resource == "configmaps"
    ]


def about_misplaced_configs(found: Sequence[tuple[str, str]], *, simulated: bool = False) -> Iterator[Finding]:
    """Warns of each of them."""
    for there, meant in found:
        what = f"ConfigMap {there} is read by nobody; {meant.partition('/')[0]} is meant"
        namespace, _, name = there.partition("/")
        delete = advice(
            f"kubectl delete configmap {name} -n {namespace}",
            f"koord dev delete configmap {name} -n {namespace}",
            simulated=simulated,
        )
        yield Finding("warning", "configuration", what, f"apply it as {meant}, and delete this one: {delete}")
