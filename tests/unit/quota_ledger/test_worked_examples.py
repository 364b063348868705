"""E1 to E21 of spec/quota.md 4, each with the numbers that stand there."""

import pytest

from shared.kube.elastic_quota import DEFAULT, SYSTEM, DeclaredQuota
from tests.support.worked_quotas import EXAMPLES, Q, runtimes, tree_of


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_runtimes_are_the_specifications(example: str) -> None:
    total, quotas, options, expected = EXAMPLES[example]
    assert runtimes(tree_of({"cpu": total}, quotas, **options)) == expected


def test_e11_a_resource_that_the_tree_lacks_is_not_scaled_and_given_all_the_same() -> None:
    a = DeclaredQuota(name="A", max={"cpu": 9, "memory": 50}, weight={"cpu": 9, "memory": 50})
    b = DeclaredQuota(name="B", min={"gpu": 2}, max={"cpu": 9, "gpu": 4}, weight={"cpu": 9, "gpu": 4})
    tree = tree_of({"cpu": 10, "memory": 100}, [a, b], pods={"B": {"gpu": 3}})
    assert tree.quotas["A"].runtime == {"cpu": 0, "gpu": 0, "memory": 0}
    assert tree.quotas["B"].runtime == {"cpu": 0, "gpu": 2, "memory": 0}


def test_e14_what_the_reserved_groups_use_is_not_shared() -> None:
    groups = [DeclaredQuota(name=name, max={"cpu": 1000}) for name in (SYSTEM, DEFAULT)]
    tree = tree_of({"cpu": 100}, [*groups, Q("A", pods=500)])
    tree.add_used(DEFAULT, {"cpu": 12}, {})
    tree.add_used(SYSTEM, {"cpu": 8}, {})
    tree.refresh_runtimes()
    assert tree.capacity == {"cpu": 80}
    assert runtimes(tree) == {"A": 80}


def test_e20_a_lender_gets_back_what_it_lent() -> None:
    tree = tree_of({"cpu": 100}, [Q("A", 50, pods=80), Q("B", 50)])
    assert runtimes(tree) == {"A": 80, "B": 0}
    tree.add_request("B", {"cpu": 50}, {})
    assert tree.refresh_runtimes() == 2
    assert runtimes(tree) == {"A": 50, "B": 50}


def test_minima_of_quotas_that_do_not_lend_add_up_the_tree() -> None:
    """Checklist 5 of spec/quota.md 11."""
    quotas = [
        Q("P", 20, 40, lends=False),
        Q("c2", 10, 40, lends=False, parent="P"),
        Q("c3", 5, 40, lends=False, parent="P"),
    ]
    tree = tree_of({"cpu": 100}, quotas)
    seen = []
    for more in (0, 5, 10, 10):
        tree.add_request("c2", {"cpu": more}, {})
        seen.append([tree.quotas[name].request["cpu"] for name in ("P", "c2", "c3")])
    assert seen == [[20, 10, 5], [20, 10, 5], [20, 15, 5], [30, 25, 5]]


def test_shares_do_not_depend_on_the_number_of_levels_that_lie_in_one_matrix() -> None:
    """Forty parents of two: more columns than a new pool of matrices has."""
    quotas = [Q(f"P{number}", 0, 100) for number in range(40)]
    for number in range(40):
        quotas += [
            Q(f"a{number}", 0, 100, pods=5, parent=f"P{number}"),
            Q(f"b{number}", 0, 100, pods=7, parent=f"P{number}"),
        ]
    found = runtimes(tree_of({"cpu": 1_000}, quotas))
    assert found == {quota.name: {"P": 12, "a": 5, "b": 7}[quota.name[0]] for quota in quotas}
