"""What the scheduler knows of quota: what the ledger's log says of quotas and pods, and what `cluster` says that it will say.

The ledger alone decides; this tells which pods it has to be asked for, and which of those that it refused may have room now.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.domain.amounts import Amounts, add, exceeding_with, raise_clamped
from shared.domain.quota_names import Names
from shared.domain.quota_rules import QuotaRules, rules_of
from shared.events import Event, Recorded
from shared.events.log import ConfigTaken, WriterStarted
from shared.events.quota import (
    PodAttached,
    PodCharged,
    PodMoved,
    PodReleased,
    PodResized,
    PodUncharged,
    QuotaAmended,
    QuotaDeclared,
    QuotaReparented,
    QuotaRetired,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import QUOTA_NAME, RESERVED, ROOT, DeclaredQuota, declared
from shared.kube.quantity import BadQuantity

FOLDED: tuple[type[Event], ...] = (
    WriterStarted, ConfigTaken, QuotaDeclared, QuotaAmended, QuotaReparented, QuotaRetired, PodAttached, PodCharged, PodUncharged,
    PodResized, PodMoved, PodReleased, RuntimeRecomputed,
)  # fmt: skip
"""Of the `quota` context."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod in the ledger.

    Attributes:
        request: what it counts with there.
        since: `quota` seq since which it counts so.
    """

    quota: str
    request: dict[str, int]
    since: int
    preemptible: bool = True
    charged: bool = False


class QuotaImage(msgspec.Struct, frozen=True):
    """What a snapshot holds."""

    is_led: bool
    rules: str
    observed: dict[str, DeclaredQuota]
    quotas: dict[str, DeclaredQuota]
    runtimes: dict[str, dict[str, int]]
    pods: dict[str, Entry]
    freed: dict[str, int]


class QuotaView:
    """A fold over `quota`, and over the ElasticQuotas of `cluster`.

    Attributes:
        is_led: whether a ledger ever wrote; without one nobody is asked.
        rules: how the ledger compares; None while it has not said so.
        names: quotas as the ledger has them.
        runtimes: quota -> what it may use.
        pods: uid -> how the ledger has it.
        freed: quota -> `quota` seq of the last event that may have made room in it.
        touched: quotas and pods, by uid, of which something changed since the last look.
    """

    def __init__(self) -> None:
        self.is_led = False
        self.rules: QuotaRules | None = None
        self._rules_text = ""
        self.names = Names()
        self.runtimes: dict[str, dict[str, int]] = {}
        self.pods: dict[str, Entry] = {}
        self.freed: dict[str, int] = {}
        self.touched: dict[str, None] = {}
        self._observed: dict[str, DeclaredQuota] = {}
        self._observed_names = Names()
        self._used: dict[str, Amounts] = {}
        self._np_used: dict[str, Amounts] = {}
        self._children: dict[str, list[str]] | None = None

    # -- `cluster`

    def observe(self, key: str, raw: Mapping[str, Any]) -> None:
        """An ElasticQuota is like this; what cannot be read keeps its name."""
        try:
            quota = declared(raw)
        except BadQuantity:
            quota = declared({**raw, "spec": {}})
        self._observed[key] = quota
        self._observed_names.put(quota)

    def lose(self, key: str) -> None:
        """An ElasticQuota is gone."""
        gone = self._observed.pop(key, None)
        if gone is None:
            return
        self._observed_names.drop(gone.name)
        for _, other in sorted(self._observed.items()):
            if other.name == gone.name:
                self._observed_names.put(other)

    # -- `quota`

    def apply(self, record: Recorded) -> None:
        """Fold one event of the ledger's."""
        seq = record.seq
        match record.event:
            case PodCharged(pod_uid=uid):
                self._charge(uid, charged=True)
            case PodUncharged(pod_uid=uid):
                self._free(self._charge(uid, charged=False), seq)
            case PodAttached(pod_uid=uid, quota=quota, request=request, preemptible=preemptible) if (
                uid not in self.pods
            ):
                self._enter(uid, Entry(quota, request, seq, preemptible))
            case PodMoved(pod_uid=uid, quota=quota, request=request, preemptible=preemptible):
                before = self._leave(uid, seq)
                is_charged = before is not None and before.charged
                self._enter(uid, Entry(quota, request, seq, preemptible, charged=is_charged))
            case PodResized(pod_uid=uid, after=after):
                if (before := self._leave(uid, seq)) is not None:
                    self._enter(uid, msgspec.structs.replace(before, request=after, since=seq))
            case PodReleased(pod_uid=uid):
                self._leave(uid, seq)
            case RuntimeRecomputed(runtimes=runtimes, dropped=dropped):
                self._grant(runtimes, dropped, seq)
            case QuotaDeclared(declared=quota) | QuotaAmended(declared=quota) | QuotaReparented(declared=quota):
                self.names.put(quota)
                self._children = None
                self._free(quota.name, seq)
            case QuotaRetired(quota=name):
                self.names.drop(name)
                self._children = None
                self.runtimes.pop(name, None)
            case ConfigTaken(text=text):
                self._rules_text, self.rules = text, rules_of(text)
            case WriterStarted():
                self.is_led = True

    # -- questions

    def must_ask(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the ledger has to be asked for such a pod: by what it has said, or by what it has still to read."""
        if not self.is_led:
            return False
        named = {QUOTA_NAME: labels.get(QUOTA_NAME, "")}
        for names in (self.names, self._observed_names):
            quota, _ = names.resolve(namespace, named)
            if quota not in ("", ROOT, *RESERVED):
                return True
        return False

    def has_room(self, entry: Entry, taken: dict[str, Amounts], np_taken: dict[str, Amounts]) -> bool:
        """Whether a pod's quota has room for it, as far as is known here, beside what is about to be `taken`."""
        rules = self.rules
        if rules is None or entry.quota in RESERVED:
            return True  # the ledger knows
        path = self._path(entry.quota)
        for depth, quota in enumerate(path if rules.check_parents else path[:1]):
            limit = self.runtimes.get(quota.name, {}) if rules.compare_runtime else quota.max
            used = add(self._below(quota.name, self._used), taken.get(quota.name, {}))
            short = exceeding_with(used, entry.request, limit)
            if [name for name in short if not depth or name in entry.request]:
                return False
        if entry.preemptible or not path:
            return True
        np_used = add(self._below(entry.quota, self._np_used), np_taken.get(entry.quota, {}))
        return not exceeding_with(np_used, entry.request, path[0].min)

    def take(self, entry: Entry, taken: dict[str, Amounts], np_taken: dict[str, Amounts]) -> None:
        """Count a pod as about to be charged."""
        for quota in self._path(entry.quota):
            raise_clamped(taken.setdefault(quota.name, {}), entry.request)
            if not entry.preemptible:
                raise_clamped(np_taken.setdefault(quota.name, {}), entry.request)

    def freed_at(self, quota: str) -> int:
        """`quota` seq of the last event that may have made room in a quota, or above it."""
        above = self._path(quota)
        return max((self.freed.get(one.name, 0) for one in above), default=0)

    # -- snapshots

    def image(self) -> QuotaImage:
        """For a snapshot: names sorted."""
        return QuotaImage(
            self.is_led,
            self._rules_text,
            dict(sorted(self._observed.items())),
            dict(sorted(self.names.quotas.items())),
            dict(sorted(self.runtimes.items())),
            dict(sorted(self.pods.items())),
            dict(sorted(self.freed.items())),
        )

    def restore(self, image: QuotaImage) -> None:
        """Take over what `image` gave."""
        self.is_led, self.runtimes, self.freed = image.is_led, image.runtimes, image.freed
        self._rules_text, self.rules = image.rules, rules_of(image.rules) if image.rules else None
        self._observed = image.observed
        for quota in image.observed.values():
            self._observed_names.put(quota)
        for quota in image.quotas.values():
            self.names.put(quota)
        for uid, entry in image.pods.items():
            self._enter(uid, entry)

    # -- parts

    def _path(self, quota: str) -> list[DeclaredQuota]:
        """The quota and what is above it, the root excluded."""
        path: list[DeclaredQuota] = []
        while (found := self.names.quotas.get(quota)) is not None and found not in path:
            path.append(found)
            quota = found.parent
        return path

    def _below(self, quota: str, sums: Mapping[str, Amounts]) -> Amounts:
        """What is used by a quota's pods and by those of the quotas under it."""
        if self._children is None:
            self._children = {}
            for name, found in sorted(self.names.quotas.items()):
                self._children.setdefault(found.parent, []).append(name)
        used = sums.get(quota, {})
        for child in self._children.get(quota, ()):
            used = add(used, self._below(child, sums))
        return used

    def _enter(self, uid: str, entry: Entry) -> None:
        self.pods[uid] = entry
        self.touched[uid] = None
        if entry.charged:
            self._count(entry, +1)

    def _leave(self, uid: str, seq: int) -> Entry | None:
        entry = self.pods.pop(uid, None)
        if entry is None:
            return None
        self.touched[uid] = None
        if entry.charged:
            self._count(entry, -1)
            self._free(entry.quota, seq)
        return entry

    def _charge(self, uid: str, *, charged: bool) -> str:
        entry = self.pods.get(uid)
        if entry is None or entry.charged == charged:
            return ""
        self.pods[uid] = msgspec.structs.replace(entry, charged=charged)
        self._count(entry, +1 if charged else -1)
        return entry.quota

    def _count(self, entry: Entry, sign: int) -> None:
        vector = {name: sign * size for name, size in entry.request.items()}
        raise_clamped(self._used.setdefault(entry.quota, {}), vector)
        if not entry.preemptible:
            raise_clamped(self._np_used.setdefault(entry.quota, {}), vector)

    def _grant(self, runtimes: dict[str, dict[str, int]], dropped: dict[str, list[str]], seq: int) -> None:
        more: dict[str, None] = {}
        for resource, sizes in runtimes.items():
            for quota, size in sizes.items():
                of_quota = self.runtimes.setdefault(quota, {})
                if size > of_quota.get(resource, -1):
                    more[quota] = None
                of_quota[resource] = size
        for resource, quotas in dropped.items():
            for quota in quotas:
                self.runtimes.get(quota, {}).pop(resource, None)
                more[quota] = None
        for quota in more:
            if quota in self.names.quotas:
                self.freed[quota] = seq
                self.touched[quota] = None

    def _free(self, quota: str, seq: int) -> None:
        if quota:
            for one in self._path(quota):
                self.freed[one.name] = seq
                self.touched[one.name] = None
