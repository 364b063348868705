"""A tree's numbers are a function of its quotas and their use, whatever the order of arrival."""

import pytest

from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.kube.elastic_quota import DeclaredQuota

PARENT = DeclaredQuota(name="a", max={"cpu": 0})
CHILD = DeclaredQuota(name="b", parent="a", max={"cpu": 2, "memory": 4}, min={"cpu": 2, "memory": 4})
PASSING = DeclaredQuota(name="passing", max={"gpu": 1})

each_path = pytest.mark.parametrize("in_matrices", [True, False], ids=["in-matrices", "level-by-level"])


def settle(tree: QuotaTree, *, in_matrices: bool) -> None:
    if not in_matrices:  # a tree that loses a resource computes its levels one after the other
        tree.add_quota(PASSING)
        tree.delete_quota(PASSING.name)
    tree.apply_delta(tree.compute_delta())


@each_path
@pytest.mark.parametrize("quotas", [(PARENT, CHILD), (CHILD, PARENT)], ids=["parent-first", "child-first"])
def test_a_min_is_scaled_in_a_resource_that_the_level_does_not_share(
    quotas: tuple[DeclaredQuota, ...], in_matrices: bool
) -> None:
    tree = QuotaTree()
    for each in quotas:
        tree.add_quota(each)
        settle(tree, in_matrices=in_matrices)
    assert tree.quotas["a"].runtime == {"cpu": 0, "memory": 0}
    assert tree.quotas["b"].scaled_min == {"cpu": 0, "memory": 0}
    assert tree.quotas["b"].runtime == {"cpu": 0}


@each_path
def test_such_a_min_follows_the_runtime_of_the_parent(in_matrices: bool) -> None:
    tree = QuotaTree()
    for each in (PARENT, CHILD):
        tree.add_quota(each)
    tree.set_total({"cpu": 8, "memory": 8})
    for own in (3, 0, 5):
        tree.update_quota(DeclaredQuota(name="a", max={"cpu": 0}, min={"memory": own}, lends=False))
        settle(tree, in_matrices=in_matrices)
        assert tree.quotas["a"].runtime == {"cpu": 0, "memory": own}
        assert tree.quotas["b"].scaled_min == {"cpu": 0, "memory": min(own, 4)}
        assert tree.quotas["b"].runtime == {"cpu": 0}
    tree.set_total({"cpu": 8, "memory": 2})  # now the level is reached from above: nothing in it changes
    settle(tree, in_matrices=in_matrices)
    assert tree.quotas["b"].scaled_min == {"cpu": 0, "memory": 2}
