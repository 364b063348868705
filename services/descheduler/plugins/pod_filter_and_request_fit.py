"""Arguments and arithmetic of the plugins that look at requests, not at usage: chosen pods, fit, and shares of nodes.

Source: spec/descheduler.md 1.9.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.descheduler.framework.node_affinity_and_taints import admits
from services.descheduler.load_aware.arguments import NamespacesDocument, PodSelectorDocument
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.load_aware.node_fit_on_targets import free_amount
from shared.domain.component_config import BadConfig, check_selector
from shared.domain.node_selection import meets
from shared.kube.selectors import LabelSelector


class PodChoice(NamedTuple):
    """The pods that a plugin may choose.

    Attributes:
        included, excluded: namespaces; None where not given.
        selectors: a pod matches one of them; empty for all.
    """

    included: frozenset[str] | None
    excluded: frozenset[str] | None
    selectors: tuple[LabelSelector, ...]

    def allows(self, pod: PodOnNode) -> bool:
        """Reports whether a pod's namespace and labels are chosen."""
        namespace, labels = pod.pod.metadata.namespace, pod.pod.metadata.labels or {}
        if self.included is not None and namespace not in self.included:
            return False
        if self.excluded is not None and namespace in self.excluded:
            return False
        return not self.selectors or any(meets(each, labels) for each in self.selectors)


def pod_choice(
    namespaces: NamespacesDocument | None, selectors: Sequence[PodSelectorDocument] | None, path: str
) -> PodChoice:
    """Reads `evictableNamespaces` and `podSelectors`.

    Raises:
        BadConfig: both kinds of namespaces are given, or a selector cannot be read.
    """
    given = namespaces or NamespacesDocument()
    if given.include and given.exclude:
        raise BadConfig(f"{path}.evictableNamespaces", "has include and exclude; give one of them")
    for number, each in enumerate(selectors or ()):
        check_selector(each.selector, f"{path}.podSelectors[{number}].selector")
    return PodChoice(
        frozenset(given.include) if given.include else None,
        frozenset(given.exclude) if given.exclude else None,
        tuple(each.selector for each in selectors or () if each.selector is not None),
    )


def selected_nodes(nodes: Iterable[MeasuredNode], selector: LabelSelector | None) -> list[MeasuredNode]:
    """Returns the nodes that a selector selects; all for None."""
    return [each for each in nodes if selector is None or meets(selector, each.node.metadata.labels or {})]


def fits_another_node(pod: PodOnNode, source: str, nodes: Iterable[MeasuredNode]) -> bool:
    """Reports whether another node admits a pod and has its requests free."""
    return any(each.name != source and admits(each.node, pod.pod) and has_free(each, pod.requests) for each in nodes)


def has_free(node: MeasuredNode, requests: Amounts) -> bool:
    """Reports whether a node has requests free."""
    return all(free_amount(node, name) >= amount for name, amount in requests.items() if amount > 0)


def requested_shares(requested: Amounts, allocatable: Mapping[str, int], resources: Sequence[str]) -> list[float]:
    """Returns requested / allocatable of the resources that a node has."""
    return [requested.get(name, 0) / allocatable[name] for name in resources if allocatable.get(name, 0) > 0]
