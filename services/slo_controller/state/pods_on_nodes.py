"""The pods on each node, now and lately: a usage report is about an instant, and is joined with the pods of that
instant.

A large cluster has hundreds of thousands of pods, so a pod is one small object: the parts that pods of one workload
have in common are stored once, and the pods of a node are a plain list.
"""

from collections.abc import Container, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from services.slo_controller.overcommit.usage_sums import CountedPod, PodDemand, pod_demand
from services.slo_controller.state.pod_template import PodTemplate, pod_template
from services.slo_controller.state.usage_report import UsageReport
from shared.kube.compact_uid import Uid, compact_uid, uid_text
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.pod import Pod

GONE_KEPT_NS = 1800 * SECOND
"""A pod that is gone stays this long for reports about the time when it ran, on a node without newer reports."""


SPARE_TEMPLATES = 1000
"""Templates without pods are dropped when there are more of them than pods plus this."""


class PodOnNode(CountedPod, eq=False, gc=False):
    """A pod on its node.

    Attributes:
        key, demand: see CountedPod; the demand is shared with other pods.
        template: shared with other pods of the workload.
        since_ns: when it came to the node, by its own status.
        gone_ns: when it was first observed as ended or deleted; 0 while it runs.
    """

    node: str
    template: PodTemplate
    since_ns: int
    gone_ns: int = 0


class RunningPod(NamedTuple):
    """A running pod.

    Attributes:
        position: in the order of observation.
    """

    position: int
    uid: Uid
    pod: PodOnNode


class PodsOnNodes:
    """The pods of all nodes.

    Attributes:
        by_uid: pods on nodes; a pod that is gone stays while a report may still be about the time before.
        gone: uids of the pods that are gone, oldest first.
    """

    def __init__(self) -> None:
        self.by_uid: dict[Uid, PodOnNode] = {}
        self.gone: dict[Uid, None] = {}
        self._by_node: dict[str, list[PodOnNode]] = {}
        self._templates: dict[PodTemplate, PodTemplate] = {}
        self._demands: dict[PodDemand, PodDemand] = {}

    def observe(self, at_ns: int, text: str, pod: Pod) -> str:
        """Stores a pod as it is now. Returns the node whose sums change; empty when none do."""
        node = pod.spec.node_name
        if not node:
            return ""
        if not is_live(pod):
            return self.remove(at_ns, text)
        uid = compact_uid(text)
        key, demand, template = pod.metadata.key, pod_demand(pod), pod_template(pod)
        before = self.by_uid.get(uid)
        if before is None:
            self._store(uid, PodOnNode(key, demand, node=node, template=template, since_ns=_since_ns(pod, at_ns)))
            return node
        if not before.gone_ns and (before.node, before.key, before.demand, before.template) == (
            node, key, demand, template,
        ):  # fmt: skip
            return ""
        self._take_off_node(before)
        self._store(uid, PodOnNode(key, demand, node=node, template=template, since_ns=before.since_ns))
        self.gone.pop(uid, None)
        return node

    def remove(self, at_ns: int, text: str) -> str:
        """Marks a pod as gone. Returns its node; empty when it was on none."""
        uid = compact_uid(text)
        pod = self.by_uid.get(uid)
        if pod is None or pod.gone_ns:
            return ""
        pod.gone_ns = at_ns
        self.gone[uid] = None
        return pod.node

    def forget_old(self, at_ns: int) -> None:
        """Forgets the pods that are gone for long; called with the instant of each event of `cluster`."""
        while self.gone and self.by_uid[first := next(iter(self.gone))].gone_ns < at_ns - GONE_KEPT_NS:
            self._forget(first)

    def as_of(self, node: str, at_ns: int) -> Sequence[PodOnNode]:
        """Returns the pods that were on a node at an instant; for instant 0, those that are on it now."""
        pods = self._by_node.get(node, ())
        if not at_ns:
            return [pod for pod in pods if not pod.gone_ns]
        return [pod for pod in pods if pod.since_ns <= at_ns and (not pod.gone_ns or pod.gone_ns > at_ns)]

    def newer_than(self, node: str, at_ns: int) -> Sequence[PodOnNode]:
        """Returns the live pods that came to a node after an instant; none for instant 0."""
        if not at_ns:
            return ()
        return [pod for pod in self._by_node.get(node, ()) if pod.since_ns > at_ns and not pod.gone_ns]

    def with_shared_keys(self, node: str, report: UsageReport) -> UsageReport:
        """Returns a report with the texts of the pods on the node as keys, so that each text is stored once."""
        used = report.pods
        if not used.keys:
            return report
        texts = {pod.key: pod.key for pod in self._by_node.get(node, ())}
        return report._replace(pods=replace(used, keys=tuple(map(texts.get, used.keys, used.keys))))

    def running_by_template(self, namespaces: Container[str]) -> dict[str, list[list[RunningPod]]]:
        """Returns namespace -> groups of running pods with the same template, in one pass over all pods."""
        # By identity of the template, since each is stored once and hashing one costs more than the rest of the loop.
        groups: dict[tuple[str, int], list[RunningPod]] = {}
        for position, (uid, pod) in enumerate(self.by_uid.items()):
            namespace = pod.key.partition("/")[0]
            if namespace in namespaces and not pod.gone_ns:
                groups.setdefault((namespace, id(pod.template)), []).append(RunningPod(position, uid, pod))
        found: dict[str, list[list[RunningPod]]] = {}
        for (namespace, _), pods in groups.items():
            found.setdefault(namespace, []).append(pods)
        return found

    def restore(self, stored: "StoredPods") -> None:
        """Takes over stored pods."""
        for text, (key, node, template, demand, since_ns, gone_ns) in stored.pods.items():
            pod = PodOnNode(key, stored.demands[demand], node, stored.templates[template], since_ns, gone_ns)
            self._store(compact_uid(text), pod)
        self.gone = dict.fromkeys(map(compact_uid, stored.gone))

    def stored(self) -> "StoredPods":
        """Returns the stored form. Canonical: templates and demands are numbered in the order of the pods' uids."""
        templates: dict[PodTemplate, int] = {}
        demands: dict[PodDemand, int] = {}
        pods = {
            text: (
                pod.key,
                pod.node,
                templates.setdefault(pod.template, len(templates)),
                demands.setdefault(pod.demand, len(demands)),
                pod.since_ns,
                pod.gone_ns,
            )
            for text, pod in sorted(((uid_text(uid), pod) for uid, pod in self.by_uid.items()), key=itemgetter(0))
        }
        return StoredPods(list(templates), list(demands), pods, [uid_text(uid) for uid in self.gone])

    def _store(self, uid: Uid, pod: PodOnNode) -> None:
        pod.demand = self._demands.setdefault(pod.demand, pod.demand)
        pod.template = self._templates.setdefault(pod.template, pod.template)
        self.by_uid[uid] = pod
        on_node = self._by_node.setdefault(pod.node, [])
        if on_node:
            pod.node = on_node[0].node  # one text for all pods of a node
        on_node.append(pod)

    def _take_off_node(self, pod: PodOnNode) -> None:
        on_node = self._by_node[pod.node]
        on_node.remove(pod)
        if not on_node:
            del self._by_node[pod.node]

    def _forget(self, uid: Uid) -> None:
        self._take_off_node(self.by_uid.pop(uid))
        self.gone.pop(uid, None)
        # Pods of Jobs and StatefulSets have labels of their own, so templates of deleted pods would accumulate.
        if len(self._templates) > 2 * len(self.by_uid) + SPARE_TEMPLATES:
            self._templates = {pod.template: pod.template for pod in self.by_uid.values()}
            self._demands = {pod.demand: pod.demand for pod in self.by_uid.values()}


class StoredPods(NamedTuple):
    """The stored form of all pods: each template and each demand once.

    Attributes:
        pods: uid -> key, node, number of the template, number of the demand, since_ns, gone_ns.
        gone: uids of the pods that are gone, oldest first.
    """

    templates: list[PodTemplate]
    demands: list[PodDemand]
    pods: dict[str, tuple[str, str, int, int, int, int]]
    gone: list[str]


def is_live(pod: Pod) -> bool:
    """Reports whether a pod is Running or Pending, also while it is terminating."""
    return pod.status.phase in ("Running", "Pending")


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
