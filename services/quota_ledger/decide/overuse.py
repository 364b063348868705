"""Overuse: quotas that use more than their runtime, and the pods that are revoked once that has lasted too long.

Source: spec/quota.md 6.4; upstream pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.
"""

from collections.abc import Iterator

from services.quota_ledger.accounting.ledger_projection import OveruseClock
from services.quota_ledger.decide.pods_to_revoke import Candidate, lots_of, victims
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import LedgerState
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, exceeding, sub
from shared.events import Event
from shared.events.intents import EvictionRequested
from shared.events.quota import OveruseEnded, OveruseStarted, RevocationDecided
from shared.kube.elastic_quota import RESERVED, ROOT
from shared.kube.instants import SECOND


def overuse_events(state: LedgerState, settings: LedgerSettings, now_ns: int) -> Iterator[Event]:
    """Yields the starts and ends of overuse, and revocations that are due; nothing unless revocation is on."""
    if not settings.revoke:
        return
    projection, requested = state.projection, state.evictions.pods()
    for name, tree in sorted(projection.trees.items()):
        for info in tree.quotas.values():
            if info.name in (ROOT, *RESERVED):
                continue
            exceeded = exceeding(info.used, info.runtime)
            clock = projection.overuse.get(info.name)
            if clock is None and exceeded:
                yield OveruseStarted(quota=info.name, resources=tuple(exceeded), at_ns=now_ns, tree=name)
            elif clock is not None and not exceeded:
                yield OveruseEnded(quota=info.name, at_ns=now_ns, tree=name)
            elif clock is not None:
                yield from _revocation(state, settings, now_ns, info, clock, requested)


def is_overdue(since_ns: int, now_ns: int, delay_ns: int) -> bool:
    """Returns whether overuse has lasted longer than is tolerated; exactly as long is tolerated."""
    return now_ns - since_ns > delay_ns


def _revocation(
    state: LedgerState,
    settings: LedgerSettings,
    now_ns: int,
    info: QuotaInfo,
    clock: OveruseClock,
    requested: frozenset[str],
) -> Iterator[Event]:
    """Pods that are terminating, or whose eviction is requested and has no outcome, count as gone: they are not evicted
    again, and nothing in their place.
    """
    if not is_overdue(clock.since_ns, now_ns, int(settings.revoke_after_s * 1e9)):
        return
    charged: list[Candidate] = []
    used: Amounts = dict(info.used)
    for uid in state.projection.pods_of(info.name):
        entry = state.pods.entries[uid]
        attached, pod = entry.attached, entry.observed
        if attached is None or pod is None or not attached.charged:
            continue
        if pod.terminating or uid in requested:
            used = sub(used, attached.request)
            continue
        started_s = entry.started_s or now_ns / SECOND
        charged.append(Candidate(uid, attached.request, pod.priority, started_s, attached.preemptible))
    if not exceeding(used, info.runtime):
        return
    chosen = victims(used, info.runtime, lots_of(state, charged, requested))
    pods = tuple(uid for lot in chosen for uid in lot.uids())
    yield RevocationDecided(
        quota=info.name, runtime=info.runtime, used=dict(info.used), pods=pods, at_ns=now_ns, tree=clock.tree
    )
    for lot in chosen:
        ends = f"; gang {lot.gang} ends as a whole" if lot.gang else ""
        for uid in lot.uids():
            name = state.pods.entries[uid].name
            reason = f"quota {info.name} uses more than its runtime{ends}"
            yield EvictionRequested(pod_uid=uid, pod=name, reason=reason)
