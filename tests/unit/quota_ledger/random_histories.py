"""Random histories of the `quota` context: quotas and pods that are created, changed, moved and deleted."""

from hypothesis import strategies as st

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from shared.events import Event, RecordedEvent
from shared.events.quota import (
    CapacitySet,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaReparented,
    QuotaUpdated,
)
from shared.kube.elastic_quota import DEFAULT, RESERVED, ROOT, SYSTEM, DeclaredQuota

RESOURCES = ("cpu", "memory")
MOST = 60


def amounts(draw: st.DrawFn, most: int = MOST) -> dict[str, int]:
    return {name: draw(st.integers(0, most)) for name in RESOURCES if draw(st.booleans())}


def quota(draw: st.DrawFn, name: str, parent: str) -> DeclaredQuota:
    limit = {name: draw(st.integers(0, MOST)) for name in RESOURCES}
    return DeclaredQuota(
        name=name,
        parent=parent,
        is_parent=True,
        lends=draw(st.booleans()),
        min={resource: draw(st.integers(0, size)) for resource, size in limit.items()},
        max=limit,
        weight={resource: draw(st.integers(0, 5)) for resource in RESOURCES},
    )


class History:
    """Events that a ledger could have recorded, folded as they are made."""

    def __init__(self, draw: st.DrawFn, *, guarantees: bool) -> None:
        self.draw = draw
        self.projection = LedgerProjection(guarantees=guarantees)
        self.records: list[RecordedEvent] = []
        for name in (SYSTEM, DEFAULT):
            self.add(QuotaDeclared(quota=name, declared=DeclaredQuota(name=name, max=dict.fromkeys(RESOURCES, 500))))

    def add(self, event: Event) -> None:
        seq = len(self.records) + 1
        self.records.append(RecordedEvent("quota", seq, event, seq))
        self.projection.apply(event)

    def step(self) -> None:
        """One more thing happens."""
        draw, tree = self.draw, self.projection.trees[""]
        names = [name for name in tree.quotas if name not in (ROOT, *RESERVED)]
        uids = sorted(self.projection.pods)
        kind = draw(st.integers(0, 13))
        if kind == 0 or not names:
            name = f"q{len(self.records)}"
            self.add(QuotaDeclared(quota=name, declared=quota(draw, name, draw(st.sampled_from([ROOT, *names])))))
        elif kind == 1:
            self.add(CapacitySet(tree="", total={name: draw(st.integers(0, 3 * MOST)) for name in RESOURCES}))
        elif kind == 2:
            before = tree.quotas[draw(st.sampled_from(names))].declared
            self.add(QuotaUpdated(quota=before.name, declared=quota(draw, before.name, before.parent)))
        elif kind == 3:
            self._reparent(draw(st.sampled_from(names)), names)
        elif kind == 4:
            name = draw(st.sampled_from(names))
            if not tree.quotas[name].children and not self.projection.pods_of(name):
                self.add(QuotaDeleted(quota=name))
        elif kind <= 6 or not uids:
            uid, where = f"u{len(self.records)}", draw(st.sampled_from([*names, DEFAULT]))
            event = PodAttached(
                pod_uid=uid, pod=uid, quota=where, request=amounts(draw, 9), preemptible=draw(st.booleans())
            )
            self.add(event)
        else:
            self._pod(draw(st.sampled_from(uids)), kind, [*names, DEFAULT])
        if draw(st.booleans()):
            self.recompute()

    def recompute(self) -> None:
        self.add(self.projection.trees[""].compute_delta().event(""))

    def _reparent(self, name: str, names: list[str]) -> None:
        tree = self.projection.trees[""]
        free = [other for other in names if name not in [info.name for info in tree.path(other)]]
        parent = self.draw(st.sampled_from([ROOT, *free]))
        if parent != tree.quotas[name].declared.parent:
            self.add(QuotaReparented(quota=name, declared=quota(self.draw, name, parent)))

    def _pod(self, uid: str, kind: int, names: list[str]) -> None:
        pod = self.projection.pods[uid]
        if kind <= 9:
            self.add(PodCharged(pod_uid=uid, pod=uid, quota=pod.quota, request=pod.request, cycle=len(self.records)))
        elif kind == 10:
            self.add(PodChargeReverted(pod_uid=uid, pod=uid, quota=pod.quota, request=pod.request, reason="unreserve"))
        elif kind == 11:
            self.add(PodReleased(pod_uid=uid, pod=uid, quota=pod.quota, reason="deleted"))
        elif kind == 12:
            self.add(PodResized(pod_uid=uid, pod=uid, quota=pod.quota, before=pod.request, after=amounts(self.draw, 9)))
        else:
            target = self.draw(st.sampled_from(names))
            event = PodMoved(pod_uid=uid, pod=uid, before=pod.quota, quota=target, request=amounts(self.draw, 9))
            self.add(event)


@st.composite
def histories(draw: st.DrawFn, *, guarantees: bool = False) -> History:
    history = History(draw, guarantees=guarantees)
    for _ in range(draw(st.integers(1, 25))):
        history.step()
    history.recompute()
    return history
