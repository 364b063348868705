"""The topology manager: merges the hints of all resources to one NUMA affinity.

Every combination of one hint a resource is compared, in the order of the hints, resources by name. The rule by which a
combination replaces the best one so far is not transitive, so that order is part of the result; upstream iterates over
resources in the random order of a map.

Source: spec/scheduler-core.md 4.8; upstream pkg/scheduler/frameworkext/topologymanager/*.go,
pkg/util/bitmask/bitmask.go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.plugins.node_numa_resource.hint_combinations import (
    Hint,
    Mask,
    narrowest_combinations,
    preferred_combinations,
)
from services.scheduler.plugins.node_numa_resource.node_usage import ZoneUse
from services.scheduler.plugins.node_numa_resource.policy_names import BEST_EFFORT, REQUIRED, SINGLE_NUMA

Provider = Mapping[str, Sequence[Hint] | None]
"""Resource -> its hints; None: any affinity is sufficient, empty: none is."""


class MergedHint(NamedTuple):
    """The merged affinity, and the reasons for which the policy rejects it.

    Attributes:
        unsatisfied: resources without a sufficient affinity.
        unaligned: the different affinities of the resources, where the node is rejected for that.
    """

    best: Hint
    admitted: bool
    unsatisfied: tuple[str, ...] = ()
    unaligned: str = ""


def merge(
    policy: str,
    numas: Sequence[int],
    providers: Sequence[Provider],
    exclusive: str = "",
    use: Callable[[int], ZoneUse] = lambda _: ZoneUse.IDLE,
) -> MergedHint:
    """Merges hints to the best affinity, and checks that the policy admits it.

    Args:
        numas: the NUMA nodes of the node.
        exclusive: Required keeps pods of one NUMA node and pods of several apart.
        use: the use of a NUMA node by pods with CPUs of their own.
    """
    every = mask_of(numas)
    lists, unsatisfied = _lists(providers)
    if policy == SINGLE_NUMA:
        lists = [[hint for hint in hints if _is_single(hint)] for hints in lists]
    if unsatisfied and policy != BEST_EFFORT:
        return MergedHint(
            Hint(None if policy == SINGLE_NUMA else every, preferred=False), admitted=False, unsatisfied=unsatisfied
        )
    best = _best(lists, every, exclusive, use)
    if policy == BEST_EFFORT:
        return MergedHint(Hint(every, preferred=False) if best.unsatisfied else best, admitted=True)
    if policy == SINGLE_NUMA and best.mask == every:
        best = Hint(None, best.preferred)
    if not best.preferred:
        joint = "," if policy == SINGLE_NUMA else " & "
        return MergedHint(best, admitted=False, unaligned=joint.join(_summaries(providers)))
    return MergedHint(best, admitted=True)


def mask_of(numas: Iterable[int]) -> Mask:
    """The set of these NUMA nodes."""
    mask = 0
    for numa in numas:
        mask |= 1 << numa
    return mask


def numas_of(mask: Mask) -> list[int]:
    """The NUMA nodes of a set, ascending."""
    return [numa for numa in range(mask.bit_length()) if mask >> numa & 1]


def mask_text(mask: Mask | None) -> str:
    """A set as upstream prints it: binary, padded to pairs of digits; a power of four has a pair less."""
    if mask is None:
        return "<nil>"
    pairs = max((shift for shift in range(2, 64, 2) if mask > 1 << shift), default=0)
    return f"{mask:0{pairs + 2}b}"


def _lists(providers: Sequence[Provider]) -> tuple[list[Sequence[Hint]], tuple[str, ...]]:
    lists: list[Sequence[Hint]] = []
    unsatisfied: list[str] = []
    for provider in providers:
        if not provider:
            lists.append((Hint(None, preferred=True),))
        for resource in sorted(provider or ()):
            hints = provider[resource]
            if hints is None:
                lists.append((Hint(None, preferred=True),))
            elif hints:
                lists.append(hints)
            else:
                lists.append((Hint(None, preferred=False, unsatisfied=True),))
                unsatisfied.append(resource)
    return lists, tuple(unsatisfied)


def _is_single(hint: Hint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _best(lists: Sequence[Sequence[Hint]], every: Mask, exclusive: str, use: Callable[[int], ZoneUse]) -> Hint:
    """The best combination; all NUMA nodes, not preferred, when there is none."""

    def excluded(mask: Mask) -> bool:
        return exclusive == REQUIRED and _is_excluded(mask, use)

    best = start = Hint(every, preferred=False)
    for merged in preferred_combinations(lists, every):
        if merged.mask and not excluded(merged.mask) and _replaces(merged, best):
            best = merged
    if best is not start:
        return best
    for merged in narrowest_combinations(lists, every):
        if _replaces(merged, best):
            best = merged
    return best


def _is_excluded(mask: Mask, use: Callable[[int], ZoneUse]) -> bool:
    """Returns True where running pods exclude a pod with this affinity."""
    several = mask.bit_count() > 1
    return any(use(numa) is (ZoneUse.SINGLE if several else ZoneUse.SHARED) for numa in numas_of(mask))


def _replaces(merged: Hint, best: Hint) -> bool:
    if merged.preferred != best.preferred:
        return merged.preferred
    assert merged.mask is not None, "the join of masks is one"
    assert best.mask is not None, "it begins with all NUMA nodes"
    size, least = merged.mask.bit_count(), best.mask.bit_count()
    return size < least or (size == least and (merged.mask < best.mask or merged.score > best.score))


def _summaries(providers: Sequence[Provider]) -> list[str]:
    summaries = []
    for provider in providers:
        for resource in sorted(provider or ()):
            hints = provider[resource]
            if hints is None:
                continue
            preferred = " ".join(mask_text(hint.mask) for hint in hints if hint.preferred)
            among = " ".join(mask_text(hint.mask) for hint in hints)
            summaries.append(f"{resource} prefer [{preferred}] among [{among}]")
    return sorted(summaries)
