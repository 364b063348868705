"""Resource lists as exact integers, and the operations of quota on them.

An amount is in the units of this system: cpu in milli-cores, everything else in whole units. A missing name means 0 in
sums, and *no limit* in limits.

Source: spec/quota.md, resource-list algebra; k8s.io/apiserver/pkg/quota/v1.
"""

from collections.abc import Container, Iterable, Mapping

Amounts = dict[str, int]
"""Resource name -> amount. An explicit zero and an absent name differ."""

List = Mapping[str, int]


def add(one: List, other: List) -> Amounts:
    """Adds over all names of both."""
    total = dict(one)
    for name, size in other.items():
        total[name] = total.get(name, 0) + size
    return total


def sub(one: List, other: List) -> Amounts:
    """Subtracts over all names of both; may be negative."""
    rest = dict(one)
    for name, size in other.items():
        rest[name] = rest.get(name, 0) - size
    return rest


def add_clamped(one: List, delta: List) -> Amounts:
    """Adds over all names of both, with negative results as 0."""
    total = dict(one)
    for name, size in delta.items():
        total[name] = max(total.get(name, 0) + size, 0)
    return total


def raise_clamped(total: Amounts, delta: List) -> None:
    """Adds as `add_clamped`, in place."""
    for name, size in delta.items():
        after = total.get(name, 0) + size
        total[name] = after if after > 0 else 0  # noqa: FURB136 (half the time of max, for every account above a pod)


def negated(one: List) -> Amounts:
    """Returns every amount with the opposite sign."""
    return {name: -size for name, size in one.items()}


def mask(one: List, names: Container[str]) -> Amounts:
    """Returns the entries of these names."""
    return {name: size for name, size in one.items() if name in names}


def largest(one: List, other: List) -> Amounts:
    """Returns per name the larger amount; a name in one list keeps its amount."""
    result = dict(one)
    for name, size in other.items():
        if name not in result or size > result[name]:
            result[name] = size
    return result


def capped(one: List, limit: List) -> Amounts:
    """Limits each amount; a name without a limit stays as it is."""
    return {name: min(size, limit[name]) if name in limit else size for name, size in one.items()}


def exceeding(one: List, limit: List) -> list[str]:
    """Returns the names, sorted, in which `one` exceeds the limit. A name missing on either side is skipped."""
    return sorted(name for name, size in one.items() if name in limit and size > limit[name])


def exceeding_with(one: List, more: List, limit: List) -> list[str]:
    """Returns `exceeding` of the sum of both, without computing the sum."""
    own, added = one.get, more.get
    for name, size in limit.items():
        if own(name, 0) + added(name, 0) > size:
            break
    else:
        return []  # the common case, on the path of every pod
    return sorted(
        name for name, size in limit.items() if own(name, 0) + added(name, 0) > size and (name in one or name in more)
    )


def within_all(one: List, other: List) -> bool:
    """Reports whether `one` is at most `other` in every name of both; a missing name counts as 0."""
    return all(size <= other.get(name, 0) for name, size in one.items()) and all(
        size >= 0 for name, size in other.items() if name not in one
    )


def nonzero(one: List) -> Amounts:
    """Returns the entries that are not zero."""
    return {name: size for name, size in one.items() if size}


def total(parts: Iterable[List]) -> Amounts:
    """Adds all lists."""
    result: Amounts = {}
    for part in parts:
        for name, size in part.items():
            result[name] = result.get(name, 0) + size
    return result
