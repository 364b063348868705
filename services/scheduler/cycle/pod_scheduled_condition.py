"""The PodScheduled condition of a pod without a node: the code of the main reason, and a message in Kubernetes'
words.
"""

from collections import Counter
from collections.abc import Sequence

from services.scheduler.framework.reasons import NO_NODES, ReasonTexts, summary
from shared.events.scheduling import ClassEvaluated, Rejections


def main_code(evaluated: ClassEvaluated) -> str:
    """Returns the code of the reason that rejects most nodes; among equals, that of the first plugin of the profile."""
    counts: Counter[str] = Counter()
    for rejected in evaluated.rejected:
        counts[rejected.code] = max(counts[rejected.code], rejected.nodes)
    return max(counts, key=lambda code: counts[code]) if counts else NO_NODES


def message(evaluated: ClassEvaluated, texts: ReasonTexts) -> str:
    """Returns the message of the pod's condition, in Kubernetes' words."""
    return summary(evaluated.nodes, refused_by_text(evaluated.rejected, texts))


def refused_by_text(rejected: Sequence[Rejections], texts: ReasonTexts, language: str = "en") -> dict[str, int]:
    """Returns text of a reason -> number of nodes that it rejects; details that the text does not show are
    summed up.
    """
    counts: Counter[str] = Counter()
    for entry in rejected:
        counts[texts.text(entry.code, entry.detail, language)] += entry.nodes
    return dict(counts)
