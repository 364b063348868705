"""The pods on each node, now and lately: a usage report is about an instant, and is joined with the pods of that instant."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.slo_controller.overcommit.usage_sums import PodRecord, pod_record
from services.slo_controller.state.pod_template import PodTemplate, pod_template
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.pod import Pod

GONE_KEPT_NS = 1800 * SECOND
"""A pod that is gone stays this long for reports about the time when it ran, on a node without newer reports."""


class PodOnNode(NamedTuple):
    """A pod on its node.

    Attributes:
        template: shared with other pods of its workload.
        since_ns: when it came to the node, by its own status.
        gone_ns: when it was first observed as ended or deleted; 0 while it runs.
    """

    node: str
    record: PodRecord
    since_ns: int
    gone_ns: int = 0
    template: PodTemplate = PodTemplate()


class PodsOnNodes:
    """The pods of all nodes.

    Attributes:
        by_uid: pods on nodes; a pod that is gone stays while a report may still be about the time before.
        gone: uids of the pods that are gone, oldest first.
        by_node, by_namespace: their uids.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, PodOnNode] = {}
        self.gone: dict[str, None] = {}
        self.by_node: dict[str, dict[str, None]] = {}
        self.by_namespace: dict[str, dict[str, None]] = {}
        self._templates: dict[PodTemplate, PodTemplate] = {}

    def observe(self, at_ns: int, uid: str, pod: Pod) -> str:
        """Stores a pod as it is now. Returns the node whose sums change; empty when none do."""
        node = pod.spec.node_name
        if not node:
            return ""
        record, template = pod_record(pod), pod_template(pod)
        if not record.live:
            return self.remove(at_ns, uid)
        before = self.by_uid.get(uid)
        if before is not None and before[:2] == (node, record) and before.template == template and not before.gone_ns:
            return ""
        since_ns = before.since_ns if before is not None else _since_ns(pod, at_ns)
        self._store(uid, PodOnNode(node, record, since_ns, 0, self._templates.setdefault(template, template)))
        self.gone.pop(uid, None)
        return node

    def remove(self, at_ns: int, uid: str) -> str:
        """Marks a pod as gone. Returns its node; empty when it was on none."""
        pod = self.by_uid.get(uid)
        if pod is None or pod.gone_ns:
            return ""
        self.by_uid[uid] = pod._replace(gone_ns=at_ns)
        self.gone[uid] = None
        while self.gone and self.by_uid[first := next(iter(self.gone))].gone_ns < at_ns - GONE_KEPT_NS:
            self._forget(first)
        return pod.node

    def as_of(self, node: str, at_ns: int) -> list[PodRecord]:
        """Returns the pods that were on a node at an instant; for instant 0, those that are on it now."""
        pods = map(self.by_uid.__getitem__, self.by_node.get(node, ()))
        if not at_ns:
            return [record for _, record, _, gone_ns, _ in pods if not gone_ns]
        return [
            record for _, record, since_ns, gone_ns, _ in pods if since_ns <= at_ns and (not gone_ns or gone_ns > at_ns)
        ]

    def restore(self, pods: Mapping[str, PodOnNode], gone: Sequence[str]) -> None:
        """Takes over stored pods."""
        for uid, pod in pods.items():
            self._store(uid, pod._replace(template=self._templates.setdefault(pod.template, pod.template)))
        self.gone = dict.fromkeys(gone)

    def _store(self, uid: str, pod: PodOnNode) -> None:
        self.by_uid[uid] = pod
        self.by_node.setdefault(pod.node, {})[uid] = None
        self.by_namespace.setdefault(_namespace(pod), {})[uid] = None

    def _forget(self, uid: str) -> None:
        pod = self.by_uid.pop(uid)
        self.gone.pop(uid, None)
        for index, key in ((self.by_node, pod.node), (self.by_namespace, _namespace(pod))):
            del index[key][uid]
            if not index[key]:
                del index[key]


def _namespace(pod: PodOnNode) -> str:
    return pod.record.key.partition("/")[0]


def _since_ns(pod: Pod, at_ns: int) -> int:
    """Returns when a pod came to its node.

    Its own status comes first, so that a pod older than this log counts from its start; without one, the instant at
    which it was observed.
    """
    scheduled = pod.condition("PodScheduled")
    for text in (pod.status.start_time, scheduled.last_transition_time if scheduled else None):
        if text:
            try:
                return min(instant_ns(text), at_ns) if at_ns else instant_ns(text)
            except BadTime:
                continue
    return at_ns
