"""Verification: the whole `quota` log folded again, with every invariant checked after each event.

Source: spec/quota.md 7.4. That `used` stays within the runtime is no invariant: a runtime may fall below the use.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    PODS,
    SUPPLY,
    hold_account,
    imbalances_of,
    pending_account,
    used_account,
)
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.tree.changed_runtimes_record import RuntimeDelta
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, add, nonzero, sub, total
from shared.events import RecordedEvent
from shared.events.quota import (
    BalancesOpened,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import RESERVED, ROOT

_OF_PODS = (PodAttached, PodCharged, PodMoved, PodReleased, PodResized, PodChargeReverted)


class Finding(NamedTuple):
    """A broken invariant, and the event after which it was found first.

    Attributes:
        rule: its number in the specification: `I1`.
    """

    seq: int
    event: str
    rule: str
    what: str


class VerifyReport(NamedTuple):
    """The result of a verification.

    Attributes:
        events: number of events folded.
        seq: of the last one.
        projection: after the last one.
    """

    events: int
    seq: int
    projection: LedgerProjection
    findings: list[Finding]


class Verification:
    """A log that is folded and checked, one record after the other.

    After an event of pods the quota's accounts are checked, at a RuntimeRecomputed its runtimes, and at the end
    everything.

    Attributes:
        is_over: as many findings as are wanted were found.
    """

    def __init__(self, projection: LedgerProjection | None = None, *, most: int = 20) -> None:
        self._projection = projection or LedgerProjection()
        self._findings: list[Finding] = []
        self._events = self._seq = 0
        self._most = most

    @property
    def is_over(self) -> bool:
        """Returns whether there are as many findings as a report has."""
        return len(self._findings) >= self._most

    def take(self, record: RecordedEvent) -> None:
        """Folds and checks one event of the `quota` context."""
        self._events += 1
        is_opening = isinstance(record.event, BalancesOpened)
        # Older opening balances come before the newest.
        if self._seq and record.seq != self._seq + 1 and not is_opening:
            self._findings.append(Finding(record.seq, "", "I19", f"the log goes from {self._seq} to {record.seq}"))
        self._seq = record.seq
        for rule, what in checked(self._projection, record):
            self._findings.append(Finding(record.seq, type(record.event).__name__, rule, what))

    def report(self) -> VerifyReport:
        """Checks the present projection."""
        found = self._findings + [Finding(self._seq, "", rule, what) for rule, what in holds(self._projection)]
        return VerifyReport(self._events, self._seq, self._projection, found[: self._most])


def verify(
    records: Iterable[RecordedEvent], projection: LedgerProjection | None = None, *, most: int = 20
) -> VerifyReport:
    """Verifies the events of the `quota` context among these; stops after `most` findings."""
    verification = Verification(projection, most=most)
    for record in records:
        if record.context != "quota":
            continue
        verification.take(record)
        if verification.is_over:
            break
    return verification.report()


def checked(projection: LedgerProjection, record: RecordedEvent) -> Iterator[tuple[str, str]]:
    """Folds one event; yields rule and text of what it breaks."""
    event = record.event
    if isinstance(event, RuntimeRecomputed):
        yield from _recomputed(projection, event)
    batch = projection.apply(event)
    for (tree, book, resource), size in imbalances_of(batch).items():
        yield "I1", f"postings of {book} in tree {tree!r} do not balance: {resource} is off by {size}"
    if isinstance(event, _OF_PODS):
        for quota in {event.quota, getattr(event, "before", "")} if isinstance(event, PodMoved) else {event.quota}:
            tree = projection.tree_of.get(quota, "")
            yield from _of_quota(projection, projection.trees[tree], tree, quota)


def holds(projection: LedgerProjection) -> Iterator[tuple[str, str]]:
    """Yields rule and text of every invariant that the present projection breaks."""
    for (name, book, resource), size in projection.balances.imbalances().items():
        yield "I1", f"accounts of {book} in tree {name!r} do not balance: {resource} is off by {size}"
    for name, tree in projection.trees.items():
        yield from _supply(projection, name, tree)
        for info in tree.quotas.values():
            yield from _of_quota(projection, tree, name, info.name)
            below = [tree.quotas[child] for child in info.children]
            if nonzero(sub(info.used, add(info.self_used, total(child.used for child in below)))):
                yield "I13", f"{info.name} uses {info.used}, which differs from the use below it"
            requested = add(info.self_request, total(child.limited_request() for child in below))
            if info.name != ROOT and nonzero(sub(info.child_request, requested)):
                yield "I12", f"{info.name} has a request of {info.child_request}, those below it add up to {requested}"
        yield from _of_pods(projection, name)


def _of_pods(projection: LedgerProjection, name: str) -> Iterator[tuple[str, str]]:
    pods = {uid: pod for uid, pod in projection.pods.items() if pod.tree == name}
    requested = total(pod.request for pod in pods.values())
    if nonzero(add(projection.balances.balance(name, CONSUMPTION, PODS), requested)):
        yield "I14", f"the account of pods in tree {name!r} differs from their requests of {requested}"
    by_quota: dict[str, list[str]] = {}
    for uid, pod in pods.items():
        by_quota.setdefault(pod.quota, []).append(uid)
    for quota, uids in by_quota.items():
        if sorted(uids) != projection.pods_of(quota):
            yield "I14", f"the pods of {quota} differ from those that are attached to it"


def _recomputed(projection: LedgerProjection, event: RuntimeRecomputed) -> Iterator[tuple[str, str]]:
    ours, recorded = projection.tree(event.tree).compute_delta(), RuntimeDelta.from_event(event)
    if ours == recorded:
        return
    for what, computed, theirs in (
        ("runtime", ours.runtimes, recorded.runtimes),
        ("scaled min", ours.scaled_mins, recorded.scaled_mins),
    ):
        for resource in sorted(computed.keys() | theirs.keys()):
            one, other = computed.get(resource, {}), theirs.get(resource, {})
            for quota in sorted(one.keys() | other.keys()):
                if one.get(quota) != other.get(quota):
                    now = one.get(quota, "unchanged")
                    yield (
                        "I15",
                        f"the {what} of {quota} is recorded as {other.get(quota)} {resource}, computed as {now}",
                    )
    if ours.dropped != recorded.dropped:
        yield "I15", f"runtimes are recorded as dropped for {recorded.dropped}, computed as {ours.dropped}"


def _supply(projection: LedgerProjection, name: str, tree: QuotaTree) -> Iterator[tuple[str, str]]:
    held: Amounts = {}
    for (of, book, holder), balance in projection.balances.by_account.items():
        if of == name and book == SUPPLY and holder.startswith("hold:"):
            held = add(held, balance)
    if off := nonzero(sub(held, tree.capacity)):
        yield "I2", f"the capacity held in tree {name!r} differs from its total by {off}"
    for info in tree.quotas.values():
        if info.name in RESERVED:
            continue
        own = tree.capacity if info.name == ROOT else info.runtime
        rest = sub(own, total(tree.quotas[child].runtime for child in info.children if child not in RESERVED))
        if nonzero(sub(projection.balances.balance(name, SUPPLY, hold_account(info.name)), rest)):
            yield "I2", f"{info.name} should hold {nonzero(rest)}"


def _of_quota(projection: LedgerProjection, tree: QuotaTree, name: str, quota: str) -> Iterator[tuple[str, str]]:
    info = tree.quotas.get(quota)
    if info is None:
        return
    balance = projection.balances.balance
    waiting = balance(name, CONSUMPTION, pending_account(quota))
    own, np_used = (balance(name, CONSUMPTION, used_account(quota, preemptible=each)) for each in (True, False))
    if any(size < 0 for each in (waiting, own, np_used) for size in each.values()):
        yield "I13", f"an account of {quota} is below zero"
    if nonzero(sub(info.self_used, add(own, np_used))) or nonzero(sub(info.self_np_used, np_used)):
        yield "I13", f"{quota} uses {info.self_used}, its accounts add up to {add(own, np_used)}"
    if nonzero(sub(info.self_request, add(waiting, add(own, np_used)))):
        yield "I13", f"{quota} requests {info.self_request}, its accounts add up to {add(waiting, add(own, np_used))}"
