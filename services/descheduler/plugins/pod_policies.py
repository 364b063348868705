"""Arguments that the plugins of kubernetes-sigs/descheduler have in common.

Source: spec/descheduler.md 1.8.
"""

from typing import NamedTuple

from services.descheduler.load_aware.arguments import NamespacesDocument
from services.descheduler.load_aware.measured_node import PodOnNode
from shared.domain.component_config import BadConfig, Strict, check_selector
from shared.domain.node_selection import meets
from shared.kube.selectors import LabelSelector


class CommonDocument(Strict):
    """`namespaces` and `labelSelector`."""

    namespaces: NamespacesDocument | None = None
    label_selector: LabelSelector | None = None


class PolicyPods(NamedTuple):
    """The pods that a policy is about.

    Attributes:
        included, excluded: namespaces; None where not given.
        selector: None for all.
    """

    included: frozenset[str] | None
    excluded: frozenset[str] | None
    selector: LabelSelector | None

    def allows(self, pod: PodOnNode) -> bool:
        """Reports whether the policy is about a pod."""
        metadata = pod.pod.metadata
        if self.included is not None and metadata.namespace not in self.included:
            return False
        if self.excluded is not None and metadata.namespace in self.excluded:
            return False
        return self.selector is None or meets(self.selector, metadata.labels or {})


def policy_pods(given: CommonDocument, path: str) -> PolicyPods:
    """Reads `namespaces` and `labelSelector`.

    Raises:
        BadConfig: both kinds of namespaces are given, or the selector cannot be read.
    """
    namespaces = given.namespaces or NamespacesDocument()
    if namespaces.include and namespaces.exclude:
        raise BadConfig(f"{path}.namespaces", "has include and exclude; give one of them")
    check_selector(given.label_selector, f"{path}.labelSelector")
    return PolicyPods(
        frozenset(namespaces.include) if namespaces.include else None,
        frozenset(namespaces.exclude) if namespaces.exclude else None,
        given.label_selector,
    )
