"""What the ledger records next: the difference between what the followed logs say and what its books say.

In steps, each of which rests on the one before being folded: quotas, then capacity and pods, then runtimes, then over-use.

Source: spec/quota.md 2.4, 5.2, 6.4, 7.3; docs/architecture.md, Charging quota.
"""

from collections.abc import Iterator

from services.quota_ledger.accounting.projection import AttachedPod, OveruseClock
from services.quota_ledger.decide.overuse_revoke import Holder, is_overdue, victims
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from shared.admission.quota.quota_topology import Topology, checked_place
from shared.admission.quota.quota_validation import check_namespaces
from shared.admission.rejection import AdmissionRejected
from shared.domain.amounts import Amounts, exceeding, sub
from shared.events import Draft, Event, RecordedEvent
from shared.events.intents import EvictionRequested
from shared.events.quota import (
    CapacitySet,
    OveruseEnded,
    OveruseStarted,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaRejected,
    QuotaReparented,
    QuotaUpdated,
    RevocationDecided,
)
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota

MOST_PODS = 2_000
"""Pods that one append is about, at most."""


def decide(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[Draft]:
    """The next events; none when the books say what all logs say."""
    return structure(state, settings) or postings(state) or runtimes(state) or overuse(state, settings, now_ns)


def structure(state: LedgerState, settings: LedgerSettings) -> list[Draft]:
    """Quotas that come, change, move and go."""
    if not state.quotas_due or state.structure_judged == state.structure_changes:
        return []  # quotas that are refused stay due; they are judged again when any quota is another
    drafts = [Draft(event) for event in _structure(state, settings)]
    if not drafts:
        state.structure_judged = state.structure_changes
    return drafts


def postings(state: LedgerState) -> list[Draft]:
    """What trees have to share, and what up to MOST_PODS pods hold."""
    return [Draft(event) for event in (*_capacities(state), *_pods(state))]


def runtimes(state: LedgerState) -> list[Draft]:
    """What quotas may use now; folded, there is nothing more to say until the books change."""
    return [Draft(event) for event in _runtimes(state)]


def overuse(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[Draft]:
    """What follows from over-use as of `now_ns`; looks at every quota, so it is asked now and then."""
    return [Draft(event) for event in _overuse(state, settings, now_ns)]


def caught_up(state: LedgerState, settings: LedgerSettings, now_ns: int) -> list[RecordedEvent]:
    """Decide and fold until nothing is left to decide; for readers that hold the logs but run no ledger."""
    records = []
    while drafts := decide(state, settings, now_ns):
        for draft in drafts:
            seq = state.positions.get("quota", 0) + 1
            record = RecordedEvent("quota", seq, draft.event, now_ns, draft.cause)
            state.apply(record)
            records.append(record)
    return records


def _structure(state: LedgerState, settings: LedgerSettings) -> Iterator[Event]:
    projection = state.projection
    topology = Topology(projection.names.quotas.values())
    wanted = {name: state.object_of(name) for name in state.quotas_due}
    for name in sorted(wanted, key=lambda each: _depth(each, wanted)):
        quota, before, fault = wanted[name], projection.names.quotas.get(name), state.fault_of(name)
        refused = _refused(topology, quota, before, settings) if quota is not None and quota != before else None
        code, reason = (fault.code, fault.reason) if fault else (refused.code, str(refused)) if refused else ("", "")
        if projection.rejected.get(name, "") != reason:
            yield QuotaRejected(quota=name, code=code, reason=reason)
        if quota is None:
            if before is not None and not topology.children.get(name):
                yield from _retired(state, topology, before)
            continue
        if refused or quota == before:
            continue  # the last good one stays in force
        topology.put(quota)
        tree = projection.tree_of.get(name, quota.tree if settings.multi_tree else "")
        if before is None:
            yield QuotaDeclared(quota=name, declared=quota, tree=tree)
        elif before.parent != quota.parent:
            yield QuotaReparented(quota=name, declared=quota, tree=tree)
        else:
            yield QuotaUpdated(quota=name, declared=quota, tree=tree)


def _refused(
    topology: Topology, quota: DeclaredQuota, before: DeclaredQuota | None, settings: LedgerSettings
) -> AdmissionRejected | None:
    """The rule among the others that a quota breaks."""
    if (cycle := parent_cycle(topology, quota)) is not None:
        # Never in the log, whatever the settings: sums and runtimes go along the path to the root, which a cycle lacks.
        message = (
            f"quota {quota.name}: its parents form a cycle ({', '.join(cycle)}); choose a parent that is not below it"
        )
        return Refused("parentCycle", message)
    if quota.name in RESERVED or not settings.check_quotas:
        return None
    try:
        check_namespaces(topology, quota)
        checked_place(topology, quota, before, settings.guarantees, settings.keys_may_differ)
    except AdmissionRejected as error:
        return error
    return None


def parent_cycle(topology: Topology, quota: DeclaredQuota) -> list[str] | None:
    """Returns the names from a quota up to itself where it would be its own ancestor; None where it would not."""
    chain, above = [quota.name], quota.parent
    while above != quota.name:
        chain.append(above)
        parent = topology.quotas.get(above)
        if parent is None:
            return None
        above = parent.parent
    return [*chain, quota.name]


def _retired(state: LedgerState, topology: Topology, quota: DeclaredQuota) -> Iterator[Event]:
    projection = state.projection
    tree = projection.tree_of[quota.name]
    topology.drop(quota.name)
    for uid in projection.pods_of.get(quota.name, ()):
        pod = projection.pods[uid]
        yield PodReleased(pod_uid=uid, pod=pod.pod, quota=quota.name, reason="quota-retired")
    yield QuotaDeleted(quota=quota.name, tree=tree)


def _capacities(state: LedgerState) -> Iterator[Event]:
    for name in sorted(state.projection.trees):
        total = state.total(name)
        if total != state.projection.trees[name].total:
            yield CapacitySet(tree=name, total=total, source="annotation" if name else "nodes")


def _pods(state: LedgerState) -> Iterator[Event]:
    for uid in sorted(state.due)[:MOST_PODS]:
        yield from _pod(state, uid, state.projection.pods.get(uid), state.wanted(uid))


def _pod(state: LedgerState, uid: str, held: AttachedPod | None, wanted: AttachedPod | None) -> Iterator[Event]:
    if wanted is None:
        if held is not None:
            seen = state.seen.get(uid)
            reason = "deleted" if seen is None else "terminal" if seen.ended else "unmanaged"
            yield PodReleased(pod_uid=uid, pod=held.pod, quota=held.quota, reason=reason)
        return
    charged = held is not None and held.charged
    if held is None:
        yield PodAttached(
            pod_uid=uid,
            pod=wanted.pod,
            quota=wanted.quota,
            request=wanted.request,
            tree=wanted.tree,
            preemptible=wanted.preemptible,
            matched_by=wanted.matched_by,
        )
    elif (held.quota, held.tree, held.preemptible) != (wanted.quota, wanted.tree, wanted.preemptible):
        yield PodMoved(
            pod_uid=uid,
            pod=wanted.pod,
            before=held.quota,
            quota=wanted.quota,
            request=wanted.request,
            tree=wanted.tree,
            preemptible=wanted.preemptible,
            matched_by=wanted.matched_by,
        )
    elif held.request != wanted.request:
        yield PodResized(pod_uid=uid, pod=wanted.pod, quota=wanted.quota, before=held.request, after=wanted.request)
    if charged == wanted.charged:
        return
    if held is not None and charged:
        yield PodChargeReverted(
            pod_uid=uid,
            pod=wanted.pod,
            quota=wanted.quota,
            request=wanted.request,
            reason=_why_uncharged(state, uid, held),
        )
        return
    placed, ours = state.placed.get(uid), state.is_placed(uid)
    yield PodCharged(
        pod_uid=uid,
        pod=wanted.pod,
        quota=wanted.quota,
        request=wanted.request,
        cycle=placed.cycle if placed and ours else 0,
        reason="reserve" if ours else "bound-elsewhere",
    )


def _why_uncharged(state: LedgerState, uid: str, held: AttachedPod) -> str:
    placed = state.placed.get(uid)
    if held.epoch == 0 or (placed is not None and placed.cycle == held.cycle and placed.seq):
        return "bind-refused"
    return "epoch-began" if held.epoch < state.epoch else "cycle-ended"


def _runtimes(state: LedgerState) -> Iterator[Event]:
    for name, tree in sorted(state.projection.trees.items()):
        if tree.changed_levels and (moved := tree.compute_delta()):
            yield moved.event(name)


def _overuse(state: LedgerState, settings: LedgerSettings, now_ns: int) -> Iterator[Event]:
    if not settings.revoke:
        return
    projection = state.projection
    for name, tree in sorted(projection.trees.items()):
        for info in tree.quotas.values():
            if info.name in (ROOT, *RESERVED):
                continue
            over = exceeding(info.used, info.runtime)
            clock = projection.over.get(info.name)
            if clock is None and over:
                yield OveruseStarted(quota=info.name, resources=tuple(over), at_ns=now_ns, tree=name)
            elif clock is not None and not over:
                yield OveruseEnded(quota=info.name, at_ns=now_ns, tree=name)
            elif clock is not None:
                yield from _revoked(state, settings, now_ns, info.name, clock)


def _revoked(
    state: LedgerState, settings: LedgerSettings, now_ns: int, quota: str, clock: OveruseClock
) -> Iterator[Event]:
    """Pods that are leaving are not asked to go again, and where they are enough nobody goes in their place."""
    if not is_overdue(clock.since_ns, now_ns, int(settings.revoke_after_s * 1e9)):
        return
    projection = state.projection
    info = projection.trees[clock.tree].quotas[quota]
    holders: list[Holder] = []
    used: Amounts = dict(info.used)
    for uid in projection.pods_of.get(quota, ()):
        pod, seen = projection.pods[uid], state.seen.get(uid)
        if pod.charged and seen is not None and seen.leaving:
            used = sub(used, pod.request)
        elif pod.charged and seen is not None:
            started = seen.started_ns or now_ns
            holders.append(Holder(uid, pod.request, seen.priority, started, pod.preemptible))
    if not exceeding(used, info.runtime):
        return
    pods = victims(used, info.runtime, holders)
    yield RevocationDecided(
        quota=quota, runtime=info.runtime, used=dict(info.used), pods=tuple(pods), at_ns=now_ns, tree=clock.tree
    )
    for uid in pods:
        yield EvictionRequested(
            pod_uid=uid, pod=projection.pods[uid].pod, reason=f"quota {quota} uses more than it may"
        )


def _depth(name: str, wanted: dict[str, DeclaredQuota | None]) -> tuple[int, str]:
    """Parents come before their children; what goes comes last, deepest first."""
    quota = wanted.get(name)
    if quota is None:
        return 1_000, name
    depth, seen = 0, {name}
    while (above := wanted.get(quota.parent)) is not None and above.name not in seen:
        seen.add(above.name)
        quota, depth = above, depth + 1
    return depth, name
