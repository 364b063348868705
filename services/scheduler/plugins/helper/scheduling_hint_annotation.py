"""The scheduling hint: an annotation in which another component has chosen the nodes of a pod.

    {"nodeNames":[...],"preferredNodeNames":[...],"extensions":{plugin: anything}}

Source: spec/scheduler-core.md 1.6; upstream pkg/scheduler/frameworkext/hinter.
"""

from collections.abc import Mapping

import msgspec

from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.pod_equivalence_class import HINTS
from shared.kube.json_text import read_json
from shared.type_error_words import field_fault, unreadable_annotation

UNREADABLE_ANNOTATION = ReasonText("{detail}", "无法解析 Pod 的注解：{detail}")
"""Text of the reason UnreadableAnnotation, of all plugins that read the hint."""


class BadHint(Exception):
    """An annotation that cannot be read."""


class Hint(msgspec.Struct, frozen=True, rename="camel"):
    """A hint.

    Attributes:
        node_names: the only feasible nodes; all when empty.
        preferred_node_names: nodes that come first, in this order.
        extensions: data for single plugins; for NodeNUMAResource, that the allocation of the pod is in its annotations.
    """

    node_names: tuple[str, ...] | None = None
    preferred_node_names: tuple[str, ...] | None = None
    extensions: dict[str, msgspec.Raw] | None = None


def read_hint(annotations: Mapping[str, str] | None) -> Hint | None:
    """The hint in annotations, None without one.

    Raises:
        BadHint: the annotation cannot be read.
    """
    name = next((name for name in HINTS if (annotations or {}).get(name)), None)
    if name is None:
        return None
    try:
        hint: Hint = read_json((annotations or {})[name], Hint)
    except msgspec.MsgspecError as error:
        raise BadHint(unreadable_annotation(name, field_fault(error))) from error
    return hint
