"""What a pod that found no node is told: the code of the main reason, and Kubernetes' words for all of them."""

from collections import Counter
from collections.abc import Sequence

from services.scheduler.framework.reasons import NO_NODES, ReasonTexts, summary
from shared.events.scheduling import ClassEvaluated, Rejections


def main_code(judged: ClassEvaluated) -> str:
    """The stable code of the reason that refuses most nodes; of equals, the one whose plugin is asked first."""
    counts: Counter[str] = Counter()
    for rejected in judged.rejected:
        counts[rejected.code] = max(counts[rejected.code], rejected.nodes)
    return max(counts, key=lambda code: counts[code]) if counts else NO_NODES


def message(judged: ClassEvaluated, texts: ReasonTexts) -> str:
    """What the pod's condition says, in Kubernetes' words."""
    return summary(judged.nodes, refused_by_text(judged.rejected, texts))


def refused_by_text(rejected: Sequence[Rejections], texts: ReasonTexts, language: str = "en") -> dict[str, int]:
    """Text of a reason -> how many nodes it refuses; details that the text does not show are summed up."""
    counts: Counter[str] = Counter()
    for entry in rejected:
        counts[texts.text(entry.code, entry.detail, language)] += entry.nodes
    return dict(counts)
