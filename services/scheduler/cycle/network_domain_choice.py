"""The choice of a network domain for a gang: the lowest layer of which one domain can hold it, and the nodes in there.

The number of pods that each node can take is summed up the tree once; a domain that cannot hold the gang is never
tried. Arrays alone: what is placed, and whether it fits, is up to the caller.

    slots     of a domain: the sum of those below, rounded down to the layer's multiple of pods
    candidate a domain within a domain of the required layer, all of which can hold the gang; of the lowest layer
    order     most related pods (the domain's own, then those of the domains above), then fewest slots (likewise), then
              the highest mean score, then the name
    nodes     within the candidate, at each layer: most related pods, most slots, highest mean score, name

With preferred layers, candidates come first in which the gang needs the fewest domains of these layers, the outermost
first; and only these layers (and those with multiples) order the nodes, so that no other layer splits them.

Source: spec/scheduler-workloads.md 2.6; upstream pkg/scheduler/plugins/coscheduling/core/networktopology.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.network_domains import NetworkDomains
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from shared.domain.network_topology import GatherSpec


class Wish(NamedTuple):
    """The wishes of a gang by the numbers of layers.

    Attributes:
        must: the lowest layer of which one domain has to hold the gang; 0, the cluster, without any.
        prefer: layers of which it should use few domains, the outermost first.
        multiples: [layers], at least 1.
    """

    must: int
    prefer: tuple[int, ...]
    multiples: tuple[int, ...]


class Domain(NamedTuple):
    """A domain by the number of its layer, and its own in there."""

    layer: int
    number: int


class Share(NamedTuple):
    """The pods of a gang on one node.

    Attributes:
        place: of the node among `NetworkDomains.rows`.
    """

    place: int
    pods: int


class Choice(NamedTuple):
    """A domain that holds the gang.

    Attributes:
        shares: in the order in which the pods are dealt to the nodes.
    """

    domain: Domain
    shares: tuple[Share, ...]


def wish_of(spec: GatherSpec, domains: NetworkDomains) -> Wish | str:
    """Returns the wishes of a gang in a tree; the name of a required layer that the tree does not have."""
    numbers = {name: number for number, name in enumerate(domains.layers)}
    if unknown := sorted(spec.must - numbers.keys()):
        return unknown[0]
    multiples = dict(spec.multiples)
    return Wish(
        must=max((numbers[name] for name in spec.must), default=0),
        prefer=tuple(sorted(numbers[name] for name in spec.prefer if name in numbers)),
        multiples=tuple(multiples.get(name, 1) for name in domains.layers),
    )


class DomainChoice:
    """The capacity of all domains for the pods of one gang."""

    def __init__(self, domains: NetworkDomains, wish: Wish, slots: Int64, related: Int64 | None, scores: Int64) -> None:
        """Sums up the tree.

        Args:
            slots: [nodes], number of the gang's pods that each can take.
            related: [nodes], pods near which the gang is placed; None without any.
            scores: [nodes], the higher the better; read where there are slots.
        """
        self._domains = domains
        self._wish = wish
        self._capable = slots > 0
        self._scores = np.where(self._capable, scores, 0)
        self._slots = self._summed(self._rounded(slots, len(domains.layers) - 1), is_rounded=True)
        self._related = None if related is None else self._summed(related, is_rounded=False)
        self._closed: dict[Domain, None] = {}
        self._means: list[Int64] = []

    def _rounded(self, slots: Int64, layer: int) -> Int64:
        multiple = self._wish.multiples[layer]
        return slots if multiple == 1 else slots // multiple * multiple

    def _summed(self, of_nodes: Int64, *, is_rounded: bool) -> list[Int64]:
        """Returns for each layer the sums over its domains."""
        found = [of_nodes]
        for layer in range(len(self._domains.layers) - 2, -1, -1):
            sums = self._domains.sums(found[-1], layer)
            found.append(self._rounded(sums, layer) if is_rounded else sums)
        return found[::-1]

    def largest(self, within: int | None) -> tuple[Domain, int]:
        """Returns the domain of the required layer that can take the most pods, and how many.

        Args:
            within: the only domain of that layer that may be used; None for all.
        """
        slots = self._slots[self._wish.must]
        number = within if within is not None else int(slots.argmax()) if len(slots) else 0
        return Domain(self._wish.must, number), int(slots[number]) if len(slots) else 0

    def limit(self, place: int, slots: int) -> None:
        """Notes that a node can take fewer pods than was thought."""
        number, layer = place, len(self._domains.layers) - 1
        self._slots[layer] = self._slots[layer].copy()
        self._slots[layer][place] = self._rounded(np.array([slots]), layer)[0]
        while layer:
            number, layer = int(self._domains.parents[layer][number]), layer - 1
            below = self._domains.below(layer, number, layer + 1)
            total = self._slots[layer + 1][below.start : below.stop].sum()
            self._slots[layer][number] = self._rounded(np.array([total]), layer)[0]

    def close(self, domain: Domain) -> None:
        """Leaves a candidate out of later choices."""
        self._closed[domain] = None

    def choose(self, desired: int, within: int | None) -> Choice | None:
        """Returns the best domain for a number of pods; None where none can hold them.

        Args:
            within: the only domain of the required layer that may be used; None for all.
        """
        for layer, open_ in reversed(list(self._layers(desired, within))):
            choices = self._in_order(layer, open_, desired)
            preferred = [each for each in self._wish.prefer if each > layer]
            if preferred:
                choices = iter(sorted(choices, key=lambda each: self._spread(each, preferred)))
            if (found := next(choices, None)) is not None:
                return found
        return None

    def _layers(self, desired: int, within: int | None) -> Iterator[tuple[int, Bools]]:
        """Yields the layers from the required one inwards, as long as a domain of them can hold the pods, each with the
        domains that can.
        """
        layer = self._wish.must
        open_: Bools = self._slots[layer] >= desired
        if within is not None:
            only = np.zeros(len(open_), np.bool_)
            only[within] = True
            open_ = open_ & only
        while open_.any():
            yield layer, open_
            layer += 1
            if layer == len(self._domains.layers):
                return
            open_ = open_[self._domains.parents[layer]] & (self._slots[layer] >= desired)

    def _in_order(self, layer: int, open_: Bools, desired: int) -> Iterator[Choice]:
        """Yields the candidates of a layer that can be filled, the best first."""
        left = np.flatnonzero(open_)
        if self._closed:
            left = np.array([each for each in left.tolist() if Domain(layer, each) not in self._closed], np.int64)
        while len(left):
            number = self._best(layer, left)
            shares: list[Share] = []
            if self._deal(layer, number, desired, shares) >= desired:
                yield Choice(Domain(layer, number), tuple(shares))
            left = left[left != number]

    def _best(self, layer: int, numbers: Int64) -> int:
        """Returns the first of some domains of a layer."""
        for of, key in self._keys(layer):
            if len(numbers) == 1:
                break
            above = numbers
            for each in range(layer, of, -1):
                above = self._domains.parents[each][above]
            values = key[above]
            numbers = numbers[values == values.min()]
        return int(numbers[0])

    def _keys(self, layer: int) -> Iterator[tuple[int, Int64]]:
        """Yields (layer, [its domains], the least first) by which the domains of a layer are compared."""
        if self._related is not None:
            for each in range(layer, -1, -1):
                yield each, -self._related[each]
        for each in range(layer, -1, -1):
            yield each, self._slots[each]
        yield layer, -self._mean(layer)
        yield layer, self._domains.ranks[layer]

    def _mean(self, layer: int) -> Int64:
        """Returns [domains of a layer]: the mean score of the nodes with slots."""
        if layer == len(self._domains.layers) - 1:
            return self._scores
        if not self._means:
            totals, counts = (
                self._summed(each, is_rounded=False) for each in (self._scores, self._capable.astype(np.int64))
            )
            self._means += [total // np.maximum(count, 1) for total, count in zip(totals, counts, strict=True)]
        return self._means[layer]

    def _deal(self, layer: int, number: int, desired: int, shares: list[Share]) -> int:
        """Deals pods to the nodes of a domain; returns how many."""
        most = min(int(self._slots[layer][number]), desired)
        most = most // self._wish.multiples[layer] * self._wish.multiples[layer]
        if most <= 0:
            return 0
        if layer == len(self._domains.layers) - 1:
            shares.append(Share(number, most))
            return most
        to, dealt = self._next_layer(layer), 0
        for each in self._fullest_first(to, self._domains.below(layer, number, to)):
            dealt += self._deal(to, each, most - dealt, shares)
            if dealt == most:
                break
        return dealt

    def _next_layer(self, layer: int) -> int:
        """Returns the next layer by which nodes are ordered."""
        last = len(self._domains.layers) - 1
        if not self._wish.prefer:
            return layer + 1
        matter = (
            each for each in range(layer + 1, last) if each in self._wish.prefer or self._wish.multiples[each] > 1
        )
        return next(matter, last)

    def _fullest_first(self, layer: int, numbers: range) -> list[int]:
        which = np.arange(numbers.start, numbers.stop)
        which = which[self._slots[layer][which] > 0]
        if len(which) < 2:
            return which.tolist()
        keys = [self._domains.ranks[layer][which], -self._mean(layer)[which], -self._slots[layer][which]]
        if self._related is not None:
            keys.append(-self._related[layer][which])
        ordered: list[int] = which[np.lexsort(keys)].tolist()
        return ordered

    def _spread(self, choice: Choice, layers: list[int]) -> tuple[int, ...]:
        """Returns the number of domains of each layer in which pods are."""
        last = len(self._domains.layers) - 1
        return tuple(
            len({self._domains.above(last, share.place, layer) for share in choice.shares}) for layer in layers
        )
