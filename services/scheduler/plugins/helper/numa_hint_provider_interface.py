"""Interfaces between plugins whose resources lie below NUMA nodes, so that one topology manager merges the hints of all.

The plugin that merges asks each provider for its offer on a node: hints, and whether an affinity can be allocated. The
provider reads the merged affinity back, for its own scores and allocations.

Source: spec/scheduler-core.md 4.8; upstream pkg/scheduler/frameworkext/topologymanager.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.state.pod_equivalence_class import PodClass

MOST_NUMAS = 64
"""Upper bound of the numbers of NUMA nodes; reports with other numbers are ignored."""

ANY_NUMA = -1
"""In place of a mask: no affinity was decided, or any NUMA node is as good."""


class ZoneHint(NamedTuple):
    """A set of NUMA nodes that is sufficient for a resource."""

    numas: tuple[int, ...]
    preferred: bool
    score: int


class ZoneOffer(Protocol):
    """The offer of nodes in one state of a provider to a class of pods."""

    @property
    def key(self) -> Hashable:
        """A key that is equal for equal offers."""

    def hints(self) -> Mapping[str, Sequence[ZoneHint]] | Rejection:
        """Resource -> hints; none where any affinity is sufficient."""

    def try_within(self, numas: frozenset[int] | None) -> Rejection | None:
        """Tries an allocation below some NUMA nodes; None for all of them."""


class ZoneProvider(Protocol):
    """A plugin's state of one cycle whose resources lie below NUMA nodes."""

    def offers_zones(self, pod_class: PodClass) -> bool:
        """Returns True where the class requests such resources and a node has some."""

    def offer_numbers(self, rows: Int64) -> Int64:
        """[rows]: numbers that are equal for nodes with equal offers to each class; 0: it offers nothing there."""

    def zone_offer(self, pod_class: PodClass, row: int) -> ZoneOffer | None:
        """The offer of a node; None where it has nothing that lies below NUMA nodes."""


class AffinitySource(Protocol):
    """The state of one cycle of the plugin that merges hints."""

    def fixed_rows(self, pod_class: PodClass) -> Bools | None:
        """bool[all rows]: nodes whose affinity its filter decides, with an allocation of every provider; None: none."""

    def affinities(self, pod_class: PodClass, rows: Int64) -> Int64:
        """[rows]: the decided sets of NUMA nodes, a bit each; ANY_NUMA where any will do."""

    def affinity_to_reserve(self, pod_class: PodClass, row: int) -> int:
        """The set of NUMA nodes for the next pod of the class on a node, as in `affinities`."""


class ClassOffers(NamedTuple):
    """The offers of a provider to one class of pods."""

    provider: ZoneProvider
    pod_class: PodClass

    def on(self, row: int) -> tuple[ZoneOffer, ...]:
        """The offer of a node, if it has any."""
        offer = self.provider.zone_offer(self.pod_class, row)
        return () if offer is None else (offer,)


def numas_in(mask: int) -> frozenset[int] | None:
    """Returns the NUMA nodes of a mask; None for ANY_NUMA."""
    if mask == ANY_NUMA:
        return None
    return frozenset(numa for numa in range(mask.bit_length()) if mask >> numa & 1)
