"""The trial balance: the whole `quota` log folded anew, with every invariant that must hold after each event.

Source: spec/quota.md 7.4. What must not be asserted there is not asserted here: that `used` is within the runtime, for one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    SUPPLY,
    hold_account,
    imbalances_of,
    pending_account,
    used_account,
)
from services.quota_ledger.accounting.projection import LedgerProjection
from services.quota_ledger.tree.quota_tree import QuotaTree
from services.quota_ledger.tree.runtime_delta import RuntimeDelta
from shared.domain.amounts import Amounts, add, nonzero, sub, total
from shared.events import RecordedEvent
from shared.events.quota import (
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
    """Something that does not hold, and the event after which it first did not.

    Attributes:
        rule: as the specification numbers it: `I1`.
    """

    seq: int
    event: str
    rule: str
    what: str


class VerifyReport(NamedTuple):
    """What came out.

    Attributes:
        events: how many were folded.
        seq: of the last one.
    """

    events: int
    seq: int
    projection: LedgerProjection
    findings: list[Finding]


def verify(
    records: Iterable[RecordedEvent], projection: LedgerProjection | None = None, *, most: int = 20
) -> VerifyReport:
    """Fold a log and check it after every event; stops after `most` findings.

    Balances are checked by what each event touched, runtimes at each RuntimeRecomputed, and everything once more at the end.
    """
    projection = projection or LedgerProjection()
    findings: list[Finding] = []
    events = seq = 0
    for record in records:
        if record.context != "quota":
            continue
        events += 1
        if seq and record.seq != seq + 1:
            findings.append(Finding(record.seq, "", "I19", f"the log goes from {seq} to {record.seq}"))
        seq = record.seq
        for rule, what in checked(projection, record):
            findings.append(Finding(seq, type(record.event).__name__, rule, what))
        if len(findings) >= most:
            break
    findings += [Finding(seq, "", rule, what) for rule, what in holds(projection)]
    return VerifyReport(events, seq, projection, findings[:most])


def checked(projection: LedgerProjection, record: RecordedEvent) -> Iterator[tuple[str, str]]:
    """Fold one event, and say what is wrong with it."""
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
    """Every invariant of the books as they stand."""
    for (name, book, resource), size in projection.balances.imbalances().items():
        yield "I1", f"accounts of {book} in tree {name!r} do not balance: {resource} is off by {size}"
    for name, tree in projection.trees.items():
        yield from _supply(projection, name, tree)
        for info in tree.quotas.values():
            yield from _of_quota(projection, tree, name, info.name)
            below = [tree.quotas[child] for child in info.children]
            if nonzero(sub(info.used, add(info.self_used, total(child.used for child in below)))):
                yield "I13", f"{info.name} uses {info.used}, which is not what is used below it"
            asked = add(info.self_request, total(child.limited_request() for child in below))
            if info.name != ROOT and nonzero(sub(info.child_request, asked)):
                yield "I12", f"{info.name} is asked for {info.child_request}, but {asked} is asked for below it"
    for uid, pod in projection.pods.items():
        if uid not in projection.pods_of.get(pod.quota, {}):
            yield "I14", f"pod {uid} holds {pod.quota}, which does not know it"


def _recomputed(projection: LedgerProjection, event: RuntimeRecomputed) -> Iterator[tuple[str, str]]:
    ours, said = projection.tree(event.tree).compute_delta(), RuntimeDelta.from_event(event)
    if ours == said:
        return
    for what, found, recorded in (
        ("runtime", ours.runtimes, said.runtimes),
        ("min in force", ours.scaled_mins, said.scaled_mins),
    ):
        for resource in sorted(found.keys() | recorded.keys()):
            one, other = found.get(resource, {}), recorded.get(resource, {})
            for quota in sorted(one.keys() | other.keys()):
                if one.get(quota) != other.get(quota):
                    computed = one.get(quota, "unchanged")
                    yield (
                        "I15",
                        f"the {what} of {quota} is recorded as {other.get(quota)} {resource}, computed as {computed}",
                    )
    if ours.dropped != said.dropped:
        yield "I15", f"shares are recorded as dropped of {said.dropped}, computed as {ours.dropped}"


def _supply(projection: LedgerProjection, name: str, tree: QuotaTree) -> Iterator[tuple[str, str]]:
    granted: Amounts = {}
    for (of, book, holder), balance in projection.balances.by_account.items():
        if of == name and book == SUPPLY and holder.startswith("hold:"):
            granted = add(granted, balance)
    if off := nonzero(sub(granted, tree.capacity)):
        yield "I2", f"what is held in tree {name!r} differs from its capacity by {off}"
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
        yield "I13", f"{quota} uses {info.self_used}, its accounts say {add(own, np_used)}"
    if nonzero(sub(info.self_request, add(waiting, add(own, np_used)))):
        yield "I13", f"{quota} asks for {info.self_request}, its accounts say {add(waiting, add(own, np_used))}"
