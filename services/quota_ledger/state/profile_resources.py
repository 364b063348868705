"""ElasticQuotaProfiles and the resources of the nodes that they select; each node changes the sums by its difference.

Source: spec/quota.md 5.6; spec/api.md 1.9.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from shared.domain.amounts import Amounts, add, mask, nonzero, sub
from shared.domain.node_selection import problem_of, selects
from shared.events import Event
from shared.events.cluster import NodeDeleted, NodeObserved, ObjectDeleted, ObjectObserved
from shared.kube import resource_names
from shared.kube.elastic_quota import PREFIX
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity, amounts
from shared.kube.selectors import LabelSelector
from shared.type_error_words import field_fault

RESOURCE = resource_names.QUOTA_PROFILES


class ProfileSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a profile. `quota_name`: in the profile's namespace."""

    quota_name: str
    node_selector: LabelSelector
    quota_labels: dict[str, str] | None = None
    resource_ratio: str | None = None


class Profile(msgspec.Struct, frozen=True):
    """The kept fields of a profile's object."""

    metadata: Metadata
    spec: ProfileSpec


class NodeRecord(msgspec.Struct, frozen=True):
    """The fields of a node that profiles depend on.

    Attributes:
        usable: ready, and not cordoned.
    """

    labels: dict[str, str]
    allocatable: Amounts
    usable: bool


class NodeTotals(NamedTuple):
    """Sums over the nodes that a profile selects.

    Attributes:
        total: over all of them, of every resource that any of them has, even if it is zero.
        unusable: over those that are not ready or are cordoned.
        counts: resource -> number of nodes that have it.
    """

    total: Amounts
    unusable: Amounts
    counts: Amounts


class ProfileResources:
    """A fold over `cluster`.

    Attributes:
        profiles: by `namespace/name`.
        problems: `namespace/name` -> the reason why a profile is not followed. Its earlier version is not followed
            either: which nodes the new one selects is not known.
        sums: resources of the nodes of each profile.
        changed: profiles whose quota may differ from the published one.
    """

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self.problems: dict[str, str] = {}
        self.sums: dict[str, NodeTotals] = {}
        self.changed: dict[str, None] = {}
        self._nodes: dict[str, NodeRecord] = {}

    def apply(self, event: Event) -> None:
        """Folds one event of the `cluster` context."""
        match event:
            case NodeObserved(node=name, object=node):
                self._node(name, node_record_of(node))
            case NodeDeleted(node=name):
                self._node(name, None)
            case ObjectObserved(resource=resource, name=key, object=raw) if resource == RESOURCE:
                self._profile(key, raw)
            case ObjectDeleted(resource=resource, name=key) if resource == RESOURCE:
                for each in (self.profiles, self.problems, self.sums, self.changed):
                    each.pop(key, None)

    def snapshot(self) -> "ProfilesSnapshot":
        """Returns the kept fields for a snapshot."""
        return ProfilesSnapshot(self.profiles, self.problems, self._nodes)

    def restore(self, snapshot: "ProfilesSnapshot") -> None:
        """Fills a new instance from a snapshot."""
        self.problems.update(snapshot.problems)
        self._nodes.update(snapshot.nodes)
        for key, profile in snapshot.profiles.items():
            self._put(key, profile)

    def _profile(self, key: str, raw: Mapping[str, Any]) -> None:
        try:
            profile = msgspec.convert(raw, Profile)
            problem = problem_of(profile.spec.node_selector)
        except msgspec.ValidationError as error:
            problem = field_fault(error)
        if problem:
            self.problems[key] = (
                f"ElasticQuotaProfile {key}: {problem}; its quota stays as it is until the profile is corrected"
            )
            for each in (self.profiles, self.sums, self.changed):
                each.pop(key, None)
            return
        self.problems.pop(key, None)
        self._put(key, profile)

    def _put(self, key: str, profile: Profile) -> None:
        self.profiles[key] = profile
        self.sums[key] = NodeTotals({}, {}, {})
        self.changed[key] = None
        for node in self._nodes.values():
            self._count(key, None, node)

    def _node(self, name: str, after: NodeRecord | None) -> None:
        before = self._nodes.pop(name, None)
        if after is not None:
            self._nodes[name] = after
        if before != after:
            for key in self.profiles:
                self._count(key, before, after)

    def _count(self, key: str, before: NodeRecord | None, after: NodeRecord | None) -> None:
        selector = self.profiles[key].spec.node_selector
        sums = self.sums[key]
        for node, changed in ((before, sub), (after, add)):
            if node is not None and selects(selector, node.labels):
                unusable = sums.unusable if node.usable else nonzero(changed(sums.unusable, node.allocatable))
                counts = nonzero(changed(sums.counts, dict.fromkeys(node.allocatable, 1)))
                sums = NodeTotals(mask(changed(sums.total, node.allocatable), counts), unusable, counts)
        if sums != self.sums[key]:
            self.sums[key] = sums
            self.changed[key] = None


class ProfilesSnapshot(NamedTuple):
    """The schema of a snapshot."""

    profiles: dict[str, Profile]
    problems: dict[str, str]
    nodes: dict[str, NodeRecord]


def node_record_of(node: Node) -> NodeRecord:
    """Reads the fields of a node that profiles depend on."""
    try:
        allocatable = amounts(node.status.allocatable or {})
    except BadQuantity:
        allocatable = {}
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return NodeRecord(node.metadata.labels or {}, allocatable, ready and not node.spec.unschedulable)


def is_labelled(profile: Profile) -> bool:
    """Returns whether a profile has a label for its tree."""
    return bool((profile.metadata.labels or {}).get(PREFIX + "tree-id"))


def tree_of(profile: Profile) -> str:
    """Returns the id of the tree whose root is a profile's quota: its label, else the FNV-1a hash of its key."""
    if is_labelled(profile):
        return (profile.metadata.labels or {})[PREFIX + "tree-id"]
    value = 0xCBF29CE484222325
    for byte in profile.metadata.key.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return str(value)
