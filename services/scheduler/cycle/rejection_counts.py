"""The summary of a class in the record of a cycle: number of rejected nodes by plugin and reason."""

from collections import Counter

from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.merge_and_select_nodes import NO_NODE, tally
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events.scheduling import Rejections

BEST = 3
"""Number of best nodes that a cycle records per class."""


def rejections(profile: Profile, pod_class: PodClass, by: Int64, result: Int64) -> tuple[Rejections, ...]:
    """Returns the reasons by plugin, in the order of the profile's filters.

    Args:
        by, result: [nodes]: index and result of the rejecting filter, as in ClassEvaluation.
    """
    filters = profile.filters
    counts: list[int] = tally(by, NO_NODE, len(filters) - NO_NODE).tolist()
    return tuple(
        rejection
        for index, nodes in enumerate(counts[-NO_NODE:])
        if nodes
        for rejection in listed(filters[index], pod_class, Counter(result[by == index].tolist()))
    )


def listed(plugin: Plugin, pod_class: PodClass, results: Counter[int]) -> tuple[Rejections, ...]:
    """Returns a plugin's reasons, those of most nodes first.

    Args:
        results: verdict -> how many nodes it refuses.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for result, nodes in results.items():
        for reason in plugin.reasons(pod_class, result):
            counts[reason.code, reason.detail] += nodes
    return tuple(
        Rejections(plugin=plugin.name, code=code, nodes=nodes, detail=detail)
        for (code, detail), nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
