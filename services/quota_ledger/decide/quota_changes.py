"""Quotas that are created, changed, moved, deleted or rejected. Source: spec/quota.md 2.5, 5.2."""

from collections.abc import Iterator, Mapping

from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.admission.quota.quota_topology import Topology, check_cycle, checked_place
from shared.admission.quota.quota_validation import check_namespaces, prefix
from shared.admission.rejection import ALSO, AdmissionRejected, reject_together
from shared.events import Event
from shared.events.quota import (
    PodReleased,
    QuotaDeclared,
    QuotaDeleted,
    QuotaRejected,
    QuotaReparented,
    QuotaUpdated,
)
from shared.kube.elastic_quota import RESERVED, DeclaredQuota

DUPLICATE = "exists"
"""Code of an object whose name an older one has, as of the webhook that would have refused it."""

LAST = 1_000
"""Sorts quotas that are deleted behind all others."""


def quota_events(state: LedgerState, settings: LedgerSettings) -> Iterator[Event]:
    """Yields the events of all quotas that differ from their objects, parents first."""
    projection = state.projection
    topology = Topology(projection.lookup.quotas.values())
    desired = {name: state.object_of(name) for name in state.quotas_to_update}
    for name in sorted(desired, key=lambda each: _depth(each, desired)):
        quota, before, error = desired[name], projection.lookup.quotas.get(name), state.error_of(name)
        refused = _refused(topology, quota, before, settings) if quota is not None and quota != before else None
        if quota is not None and refused is not None and refused.code == "parentMissing":
            refused = _rejected_parent(state, desired, quota) or refused
        code, reason = (error.code, error.reason) if error else (refused.code, str(refused)) if refused else ("", "")
        if projection.rejected.get(name, "") != reason:
            yield QuotaRejected(quota=name, code=code, reason=reason)
        yield from _duplicates(state, name)
        if quota is None:
            if before is not None and not topology.children.get(name):
                yield from _deleted(state, topology, before)
            continue
        if refused or quota == before:
            continue  # the last valid declaration stays in force
        topology.put(quota)
        tree = projection.tree_of.get(name, quota.tree if settings.multi_tree else "")
        if before is None:
            yield QuotaDeclared(quota=name, declared=quota, tree=tree)
        elif before.parent != quota.parent:
            yield QuotaReparented(quota=name, declared=quota, tree=tree)
        else:
            yield QuotaUpdated(quota=name, declared=quota, tree=tree)


def _duplicates(state: LedgerState, name: str) -> Iterator[QuotaRejected]:
    """Yields the objects of a name that an older one keeps out, and those that are no longer kept out."""
    recorded, found = state.projection.duplicates.get(name, {}), state.duplicates_of(name)
    for key in sorted(recorded.keys() | found.keys()):
        reason = found.get(key, "")
        if recorded.get(key, "") != reason:
            yield QuotaRejected(quota=name, code=DUPLICATE if reason else "", reason=reason, object=key)


def _refused(
    topology: Topology, quota: DeclaredQuota, before: DeclaredQuota | None, settings: LedgerSettings
) -> AdmissionRejected | None:
    """Returns the rules among several quotas that a declaration breaks."""
    try:
        # Never in the log, whatever the settings: sums and runtimes follow the path to the root, which a cycle lacks.
        check_cycle(topology.quotas, quota)
        if quota.name in RESERVED or not settings.check_quotas:
            return None
        checks = [
            lambda: check_namespaces(topology, quota),
            lambda: checked_place(topology, quota, before, settings.guarantees, settings.keys_may_differ),
        ]
        reject_together(prefix(quota.name), checks, quota.ignored)
    except AdmissionRejected as error:
        return error
    return None


def _rejected_parent(
    state: LedgerState, desired: Mapping[str, DeclaredQuota | None], quota: DeclaredQuota
) -> AdmissionRejected | None:
    """Returns the cycle or the rejection that keeps a quota's parent out of the tree; None where it has no object."""
    parent = quota.parent
    if desired.get(parent) is None and state.error_of(parent) is None:
        return None
    try:
        check_cycle(desired, quota)
    except AdmissionRejected as cycle:
        return cycle
    text = f"quota {quota.name}: its parent {parent} is rejected; correct that first"
    return AdmissionRejected("parentMissing", ALSO.join((text, *quota.ignored)))


def _deleted(state: LedgerState, topology: Topology, quota: DeclaredQuota) -> Iterator[Event]:
    projection = state.projection
    tree = projection.tree_of[quota.name]
    topology.drop(quota.name)
    for uid in projection.pods_of(quota.name):
        yield PodReleased(pod_uid=uid, pod=projection.pods.name(uid), quota=quota.name, reason="quota-retired")
    yield QuotaDeleted(quota=quota.name, tree=tree)


def _depth(name: str, desired: dict[str, DeclaredQuota | None]) -> tuple[int, str]:
    """Sort key: parents before their children, deleted quotas last."""
    quota = desired.get(name)
    if quota is None:
        return LAST, name
    depth, seen = 0, {name}
    while (above := desired.get(quota.parent)) is not None and above.name not in seen:
        seen.add(above.name)
        quota, depth = above, depth + 1
    return depth, name
