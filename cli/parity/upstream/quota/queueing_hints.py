"""Queueing hints: the events that wake a pod that its quota has refused. Source: spec/quota.md 6.2.

Upstream goes by relation: something happened in the pod's quota, or above it, as a copy of the quotas has it that is
made every two minutes. Production goes by capacity: something came free there, and it is enough for the pod.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from cli.parity.upstream.quota.filter_result import rejection_of
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_objects import is_same
from cli.parity.upstream.quota.quota_plugin import QuotaPlugin
from shared.domain.amounts import Amounts
from shared.kube.elastic_quota import DEFAULT, RESERVED, ROOT, DeclaredQuota, declared
from shared.kube.pod import Pod


def hints(given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Returns a hint per query."""
    by_relation = Quirk.HINTS_BY_RELATION in quirks
    copied = QuotaPlugin.after(given, quirks) if by_relation else None
    found = []
    for query in given["queries"]:
        if copied is None:
            wakes = _has_room_come(given, query, quirks)
        elif given["snapshotTaken"]:
            wakes = _is_related(copied, query)
        else:
            wakes = _is_related_to_nothing_known(copied, query)
        found.append("Queue" if wakes else "QueueSkip")
    return {"hints": found}


def _is_related(copied: QuotaPlugin, query: Mapping[str, Any]) -> bool:
    own, tree = copied.resolve(msgspec.convert(query["pod"], Pod))
    if not own:
        return False
    has_parents = copied.args.get("enableCheckParentQuota", False)
    path = [info.name for info in copied.trees[tree].path(own) if info.name != ROOT]
    related = path if has_parents else path[:1]
    event = query["event"]
    if event["type"] == "quotaUpdate":
        after = declared(event["quota"])
        return after.tree == tree and after.name in related and not is_same(declared(event["old"]), after)
    other = msgspec.convert(event["pod"], Pod)
    quota, other_tree = copied.resolve(other)
    booked = copied.pods.of(other_tree, quota).get(other.metadata.key)
    return booked is not None and booked.assigned and other_tree == tree and quota in related


def _is_related_to_nothing_known(copied: QuotaPlugin, query: Mapping[str, Any]) -> bool:
    """Hints before the first copy, when every managed pod is of a default group of which nothing is known.

    An event that has to be compared with that group wakes the pod.
    """
    if "DisableDefaultQuota" in copied.gates:
        return False
    event = query["event"]
    if event["type"] == "podDelete":
        return True
    after = declared(event["quota"])
    has_parents = copied.args.get("enableCheckParentQuota", False)
    is_own = after.name == DEFAULT or has_parents
    return not after.tree and is_own and not is_same(declared(event["old"]), after)


class _Seen(NamedTuple):
    """The books at one moment: bookings by pod, runtimes and declarations by quota."""

    booked: dict[str, tuple[str, Amounts, bool]]
    runtimes: dict[str, Amounts]
    declared: dict[str, DeclaredQuota]


def _has_room_come(given: Mapping[str, Any], query: Mapping[str, Any], quirks: Quirks) -> bool:
    scheduler = QuotaPlugin.after(given, quirks)
    scheduler.take({"type": "podAdd", "pod": query["pod"]})
    scheduler.settle()
    before = _seen(scheduler)
    scheduler.take(query["event"])
    scheduler.settle()
    after = _seen(scheduler)
    pod = msgspec.convert(query["pod"], Pod)
    key = pod.metadata.key
    if key not in after.booked:
        return False
    quota = after.booked[key][0]
    is_new = before.booked.get(key, ())[:2] != after.booked[key][:2]
    has_parents = scheduler.args.get("enableCheckParentQuota", False)
    related = _path(after.declared, quota) if has_parents else [quota]
    if not is_new and not set(related) & set(_freed(before, after)):
        return False
    return quota in RESERVED or rejection_of(scheduler, pod) is None


def _seen(scheduler: QuotaPlugin) -> _Seen:
    booked: dict[str, tuple[str, Amounts, bool]] = {}
    runtimes: dict[str, Amounts] = {}
    for name, tree in scheduler.trees.items():
        for quota, info in tree.quotas.items():
            runtimes[quota] = info.runtime
            for key, each in scheduler.pods.of(name, quota).items():
                booked[key] = quota, each.vector, each.assigned
    return _Seen(booked, runtimes, dict(scheduler.names.quotas))


def _freed(before: _Seen, after: _Seen) -> Iterator[str]:
    """Yields the quotas in which something may have come free."""
    for key, (quota, vector, assigned) in before.booked.items():
        now = after.booked.get(key)
        if now is None or now[:2] != (quota, vector) or (assigned and not now[2]):
            yield from _path(after.declared, quota)
    for name, declaration in after.declared.items():
        if before.declared.get(name) != declaration:
            yield from _path(after.declared, name)
    for name, runtime in after.runtimes.items():
        old = before.runtimes.get(name, {})
        if any(size > old.get(resource, -1) for resource, size in runtime.items()) or old.keys() - runtime.keys():
            yield name


def _path(quotas: Mapping[str, DeclaredQuota], name: str) -> Iterable[str]:
    path: dict[str, None] = {}
    while name in quotas and name not in path:
        path[name] = None
        name = quotas[name].parent
    return path
