"""ElasticQuotaProfiles and what the nodes that they select come to; sums are kept by the difference.

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

RESOURCE = resource_names.QUOTA_PROFILES


class ProfileSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a profile says. `quota_name`: in the profile's namespace."""

    quota_name: str
    node_selector: LabelSelector
    quota_labels: dict[str, str] | None = None
    resource_ratio: str | None = None


class Profile(msgspec.Struct, frozen=True):
    """A profile's object as kept."""

    metadata: Metadata
    spec: ProfileSpec


class NodeRecord(msgspec.Struct, frozen=True):
    """A node as far as profiles ask.

    Attributes:
        usable: ready, and not cordoned.
    """

    labels: dict[str, str]
    allocatable: Amounts
    usable: bool


class NodeTotals(NamedTuple):
    """Of the nodes that a profile selects; those that are not usable count in both.

    Attributes:
        total: of every resource that any of them names, were it zero.
        naming: resource -> how many of them name it.
    """

    total: Amounts
    unusable: Amounts
    naming: Amounts


class ProfileView:
    """A fold over `cluster`.

    Attributes:
        profiles: by `namespace/name`.
        problems: `namespace/name` -> why a profile is not followed. What it was before is followed no longer: which nodes it means
            is not known.
        sums: what the nodes of each profile come to.
        changed: profiles of which something may have changed since they were last looked at.
    """

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self.problems: dict[str, str] = {}
        self.sums: dict[str, NodeTotals] = {}
        self.changed: dict[str, None] = {}
        self._nodes: dict[str, NodeRecord] = {}

    def apply(self, event: Event) -> None:
        """Fold one event of the `cluster` context."""
        match event:
            case NodeObserved(node=name, object=node):
                self._node(name, seen_of(node))
            case NodeDeleted(node=name):
                self._node(name, None)
            case ObjectObserved(resource=resource, name=key, object=raw) if resource == RESOURCE:
                self._profile(key, raw)
            case ObjectDeleted(resource=resource, name=key) if resource == RESOURCE:
                for each in (self.profiles, self.problems, self.sums, self.changed):
                    each.pop(key, None)

    def image(self) -> "ProfilesSnapshot":
        """For a snapshot."""
        return ProfilesSnapshot(self.profiles, self.problems, self._nodes)

    def restore(self, image: "ProfilesSnapshot") -> None:
        """Take over what was kept."""
        self.problems.update(image.problems)
        self._nodes.update(image.nodes)
        for key, profile in image.profiles.items():
            self._put(key, profile)

    def _profile(self, key: str, raw: Mapping[str, Any]) -> None:
        try:
            profile = msgspec.convert(raw, Profile)
            problem = problem_of(profile.spec.node_selector)
        except msgspec.ValidationError as error:
            problem = str(error)
        if problem:
            self.problems[key] = f"ElasticQuotaProfile {key}: {problem}; its quota stays as it is until this is mended"
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
        for node, moved in ((before, sub), (after, add)):
            if node is not None and selects(selector, node.labels):
                unusable = sums.unusable if node.usable else nonzero(moved(sums.unusable, node.allocatable))
                naming = nonzero(moved(sums.naming, dict.fromkeys(node.allocatable, 1)))
                sums = NodeTotals(mask(moved(sums.total, node.allocatable), naming), unusable, naming)
        if sums != self.sums[key]:
            self.sums[key] = sums
            self.changed[key] = None


class ProfilesSnapshot(NamedTuple):
    """What a snapshot holds."""

    profiles: dict[str, Profile]
    problems: dict[str, str]
    nodes: dict[str, NodeRecord]


def seen_of(node: Node) -> NodeRecord:
    """A node as far as profiles ask."""
    try:
        allocatable = amounts(node.status.allocatable or {})
    except BadQuantity:
        allocatable = {}
    ready = any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
    return NodeRecord(node.metadata.labels or {}, allocatable, ready and not node.spec.unschedulable)


def is_labelled(profile: Profile) -> bool:
    """Whether a profile names its tree."""
    return bool((profile.metadata.labels or {}).get(PREFIX + "tree-id"))


def tree_of(profile: Profile) -> str:
    """The tree that a profile's quota is the root of: its label, else the FNV-1a hash of its key."""
    if is_labelled(profile):
        return (profile.metadata.labels or {})[PREFIX + "tree-id"]
    value = 0xCBF29CE484222325
    for byte in profile.metadata.key.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return str(value)
