"""The pods of the cluster, each kept once, with the indexes that cycles and migration read.

Source: spec/descheduler.md 1.7 (indexes).
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from shared.domain.gang import gang_of
from shared.kube.pod import Pod, PodSpec

SPARE_SPECS = 1000
"""Specs without pods are dropped when there are more of them than pods plus this."""

_Index = dict[str, dict[str, None]]


class ObservedPods:
    """Pods; a name has one pod at a time.

    Attributes:
        by_uid: uid -> the pod; those on no node as well.
        by_key: `namespace/name` -> the pod.
        versions: node -> number of changes of its pods. It tells caches what has changed, and is not stored.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, Pod] = {}
        self.by_key: dict[str, Pod] = {}
        self.versions: dict[str, int] = {}
        self._on_node: _Index = {}
        self._unavailable: _Index = {}
        self._of_gang: _Index = {}
        self._specs: dict[bytes, PodSpec] = {}

    def put(self, pod: Pod) -> None:
        """Stores a pod as it is now; it takes its name from a pod that had it before."""
        uid, key = pod.metadata.uid, pod.metadata.key
        if (before := self.by_key.get(key)) is not None and before.metadata.uid != uid:
            self.remove(before.metadata.uid)
        self.remove(uid)
        # Pods of one workload have equal specs, which are most of a pod: each is stored once.
        spec = self._specs.setdefault(ENCODER.encode(pod.spec), pod.spec)
        pod = self.by_uid[uid] = self.by_key[key] = replace(pod, spec=spec)
        if spec.node_name:
            self._on_node.setdefault(spec.node_name, {})[uid] = None
            self._mark(spec.node_name)
        if (owner := pod.metadata.controller) is not None and not is_available(pod):
            self._unavailable.setdefault(owner.uid, {})[uid] = None
        if gang := gang_of(pod.metadata):
            self._of_gang.setdefault(gang, {})[uid] = None
        if len(self._specs) > 2 * len(self.by_uid) + SPARE_SPECS:
            self._specs = {ENCODER.encode(each.spec): each.spec for each in self.by_uid.values()}

    def remove(self, uid: str) -> None:
        """Removes a pod; one that is not there changes nothing."""
        pod = self.by_uid.pop(uid, None)
        if pod is None:
            return
        del self.by_key[pod.metadata.key]
        if node := pod.spec.node_name:
            discard(self._on_node, node, uid)
            self._mark(node)
        if (owner := pod.metadata.controller) is not None:
            discard(self._unavailable, owner.uid, uid)
        if gang := gang_of(pod.metadata):
            discard(self._of_gang, gang, uid)

    def _mark(self, node: str) -> None:
        self.versions[node] = self.versions.get(node, 0) + 1

    # -- questions

    def on_node(self, node: str) -> list[Pod]:
        """Returns the pods on a node that have not ended, by namespace and name."""
        return [pod for pod in self._all_on(node) if not pod.has_ended]

    def ended_on(self, node: str) -> list[Pod]:
        """Returns the pods on a node that have ended, by namespace and name."""
        return [pod for pod in self._all_on(node) if pod.has_ended]

    def _all_on(self, node: str) -> list[Pod]:
        pods = [self.by_uid[uid] for uid in self._on_node.get(node, ())]
        return sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))

    def unavailable_of(self, owners: Iterable[str], namespace: str) -> tuple[Pod, ...]:
        """Returns the pods of a namespace that are not active and ready, of controllers with these uids, by name."""
        found = [self.by_uid[pod] for owner in owners for pod in self._unavailable.get(owner, ())]
        found.sort(key=lambda pod: pod.metadata.name)
        return tuple(pod for pod in found if pod.metadata.namespace == namespace)

    def of_gang(self, gang: str) -> list[Pod]:
        """Returns the members of a gang that have not ended, by name; the gang is `namespace/name`."""
        members = [self.by_uid[uid] for uid in self._of_gang.get(gang, ())]
        live = [pod for pod in members if not pod.has_ended]
        live.sort(key=lambda pod: pod.metadata.name)
        return live


def is_available(pod: Pod) -> bool:
    """Reports whether a pod is active and ready."""
    ready = pod.condition("Ready")
    is_active = not pod.has_ended and not pod.metadata.deletion_timestamp
    return is_active and ready is not None and ready.status == "True"


def discard(index: _Index, group: str, key: str) -> None:
    """Removes a member of a group, and the group with its last member."""
    members = index.get(group)
    if members is not None:
        members.pop(key, None)
        if not members:
            del index[group]


ENCODER = msgspec.json.Encoder(order="sorted")
"""Equal specs give equal texts."""
