"""Trees written as in the specification's worked examples."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.kube.elastic_quota import ROOT, DeclaredQuota


class Q(NamedTuple):
    """A quota in one resource.

    Attributes:
        pods: request of its own pods; `used`: the charged part.
        max: by default so high that it does not limit.
        weight: by default `max`.
    """

    name: str
    min: int = 0
    max: int = 10_000
    pods: int = 0
    weight: int | None = None
    lends: bool = True
    parent: str = ROOT
    used: int = 0


def declared(quota: Q, resource: str = "cpu") -> DeclaredQuota:
    return DeclaredQuota(
        name=quota.name,
        parent=quota.parent,
        is_parent=True,
        lends=quota.lends,
        min={resource: quota.min},
        max={resource: quota.max},
        weight={resource: quota.max if quota.weight is None else quota.weight},
    )


def tree_of(
    total: Mapping[str, int],
    quotas: Iterable[Q | DeclaredQuota],
    *,
    pods: Mapping[str, Mapping[str, int]] | None = None,
    scales_min: bool = True,
    guarantees: bool = False,
) -> QuotaTree:
    """Returns a settled tree; `pods`: the requests of each quota's own pods."""
    tree = QuotaTree(scales_min=scales_min, guarantees=guarantees)
    tree.set_total(dict(total))
    for quota in quotas:
        tree.add_quota(declared(quota) if isinstance(quota, Q) else quota)
        if isinstance(quota, Q):
            tree.add_request(quota.name, {"cpu": quota.pods}, {})
            tree.add_used(quota.name, {"cpu": quota.used}, {})
    for name, request in (pods or {}).items():
        tree.add_request(name, dict(request), {})
    tree.refresh_runtimes()
    return tree


def runtimes(tree: QuotaTree, resource: str = "cpu") -> dict[str, int]:
    return {
        name: info.runtime[resource] for name, info in tree.quotas.items() if name != ROOT and resource in info.runtime
    }


EXAMPLES: dict[str, tuple[int, list[Q], dict[str, Any], dict[str, int]]] = {
    "E1": (
        120,
        [
            Q("A", 30, pods=10, weight=50),
            Q("B", 20, pods=35, weight=30),
            Q("C", 25, pods=60, weight=20),
            Q("D", 15, pods=15, weight=10),
        ],
        {},
        {"A": 10, "B": 35, "C": 60, "D": 15},
    ),
    "E2": (10, [Q(name, pods=10, weight=1) for name in "abc"], {}, {"a": 4, "b": 3, "c": 3}),
    "E3": (
        7,
        [Q("a", pods=9, weight=5), Q("b", pods=9, weight=3), Q("c", pods=9, weight=2)],
        {},
        {"a": 4, "b": 2, "c": 1},
    ),
    "E4": (30, [Q("A", 5, pods=20, weight=0), Q("B", 5, pods=8, weight=1)], {}, {"A": 5, "B": 8}),
    "E5 kept": (100, [Q("A", 40, lends=False), Q("B", 10, pods=80, weight=60)], {}, {"A": 40, "B": 60}),
    "E5 lent": (100, [Q("A", 40), Q("B", 10, pods=80, weight=60)], {}, {"A": 0, "B": 80}),
    "E6": (
        50,
        [Q("A", 40, pods=60, weight=1), Q("B", 40, pods=5), Q("C", 20, pods=30, weight=1)],
        {},
        {"A": 28, "B": 5, "C": 17},
    ),
    "E7": (
        50,
        [Q("A", 40, pods=60, weight=1), Q("B", 40, pods=5), Q("C", 20, pods=30, weight=1)],
        {"scales_min": False},
        {"A": 40, "B": 5, "C": 20},
    ),
    "E8": (10, [Q(name, 7, pods=7, weight=1) for name in "ABC"], {}, {"A": 4, "B": 3, "C": 3}),
    "E9": (
        100,
        [
            Q("P1", 40, 60),
            Q("P2", 30, 80),
            Q("X", 20, 30, pods=50, parent="P1"),
            Q("Y", 10, 50, pods=45, parent="P1"),
            Q("Z", 30, 80, pods=70, parent="P2"),
        ],
        {},
        {"P1": 53, "P2": 47, "X": 29, "Y": 24, "Z": 47},
    ),
    "E10": (
        200,
        [Q("P", 100, 150), Q("A", 60, pods=30, parent="P"), Q("B", 40, parent="P")],
        {},
        {"P": 30, "A": 30, "B": 0},
    ),
    "E10 weight 0": (
        200,
        [Q("P", 100, 150), Q("A", 60, pods=30, weight=0, parent="P"), Q("B", 40, parent="P")],
        {},
        {"P": 30, "A": 18, "B": 0},
    ),
    "E12": (
        3500,
        [Q("A", 500, pods=4000, weight=1000), Q("B", 500, pods=4000, weight=2000)],
        {},
        {"A": 1333, "B": 2167},
    ),
    "E13": (
        100,
        [Q("A", 20, pods=50, used=50, weight=1), Q("B", 40, pods=70, weight=1)],
        {"guarantees": True},
        {"A": 50, "B": 50},
    ),
    "E13 without": (
        100,
        [Q("A", 20, pods=50, used=50, weight=1), Q("B", 40, pods=70, weight=1)],
        {},
        {"A": 40, "B": 60},
    ),
    "E15 idle": (
        100,
        [
            Q("P", 50, 80, lends=False),
            Q("R", 20, 90, pods=90),
            Q("A", 20, 70, parent="P"),
            Q("B", 10, 40, parent="P"),
        ],
        {},
        {"P": 50, "R": 50, "A": 0, "B": 0},
    ),
    "E15": (
        100,
        [
            Q("P", 50, 80, lends=False),
            Q("R", 20, 90, pods=90),
            Q("A", 20, 70, pods=75, parent="P"),
            Q("B", 10, 40, parent="P"),
        ],
        {},
        {"P": 64, "R": 36, "A": 64, "B": 0},
    ),
    "E16": (
        100,
        [
            Q("a", 5, pods=11, weight=4),
            Q("b", 5, pods=25, weight=3),
            Q("c", 5, pods=40, weight=2),
            Q("d", 5, pods=90, weight=1),
        ],
        {},
        {"a": 11, "b": 25, "c": 40, "d": 24},
    ),
    "E17": (
        90,
        [
            Q("org", 60, 90),
            Q("ext", 30, 60, pods=50),
            Q("dev", 30, 50, parent="org"),
            Q("prod", 30, 70, parent="org"),
            Q("d1", 10, 40, pods=40, parent="dev"),
            Q("d2", 20, 30, pods=5, parent="dev"),
            Q("p1", 30, 70, pods=28, lends=False, parent="prod"),
        ],
        {},
        {"org": 60, "ext": 30, "dev": 30, "prod": 30, "d1": 25, "d2": 5, "p1": 30},
    ),
    "E18": (
        60,
        [
            Q("P", 60, 100),
            Q("S", 40, 50, pods=45),
            Q("A", 40, 80, pods=70, parent="P"),
            Q("B", 20, 60, pods=10, parent="P"),
        ],
        {},
        {"P": 36, "S": 24, "A": 26, "B": 10},
    ),
    "E19": (-5, [Q("A", 5, pods=9), Q("B", 5, pods=9, lends=False)], {}, {"A": 0, "B": 0}),
    "E21 ten": (
        10,
        [Q("a", pods=6, weight=9), Q("b", pods=13, weight=6), Q("c", pods=16, weight=1), Q("d", pods=16, weight=1)],
        {},
        {"a": 5, "b": 3, "c": 1, "d": 1},
    ),
    "E21 eleven": (
        11,
        [Q("a", pods=6, weight=9), Q("b", pods=13, weight=6), Q("c", pods=16, weight=1), Q("d", pods=16, weight=1)],
        {},
        {"a": 6, "b": 4, "c": 1, "d": 0},
    ),
}
