"""Label and node selectors, as the API writes them. The scheduler's label index matches them."""

from shared.kube.meta import KubeStruct


class Requirement(KubeStruct, frozen=True):
    """One expression: `key` `operator` `values`; operators In, NotIn, Exists, DoesNotExist, and for nodes Gt and Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(KubeStruct, frozen=True):
    """Labels and expressions, all of which must hold; empty selects everything, absent (None) nothing."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(KubeStruct, frozen=True):
    """Expressions over a node's labels and fields (`metadata.name`), all of which must hold; empty matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()
