"""The rules of quotas: each broken alone, and upstream's own answers."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.parity.runners.quota.webhook_cases import answer
from shared.admission.quota.quota_topology import Topology, checked_place
from shared.admission.quota.quota_validation import (
    PodsOf,
    Rules,
    check_create,
    check_delete,
    check_update,
    completed,
    read,
)
from shared.admission.rejection import AdmissionRejected
from shared.kube.elastic_quota import PREFIX, ROOT, DeclaredQuota, declared
from tests.support.hypothesis_examples import examples

ROOT_FOLDER = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("KOORD_SHARED") or ROOT_FOLDER.parent / "shared")
VECTORS = Path(os.environ.get("KOORD_VECTORS") or SHARED / "vectors") / "webhook.jsonl"


def raw(name: str, **given: Any) -> dict[str, Any]:
    labels = {PREFIX + key.replace("_", "-"): value for key, value in given.pop("labels", {}).items()}
    annotations = {PREFIX + key.replace("_", "-"): value for key, value in given.pop("annotations", {}).items()}
    spec = {"min": given.pop("min", {}), "max": given.pop("max", {"cpu": "10"})}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec, **given}


TREE = Topology(
    [
        DeclaredQuota(name="org", is_parent=True, min={"cpu": 8_000}, max={"cpu": 20_000}, tree="t"),
        DeclaredQuota(name="dev", parent="org", min={"cpu": 5_000}, max={"cpu": 9_000}, tree="t", namespaces=("one",)),
        DeclaredQuota(name="flat", max={"cpu": 9_000}),
    ]
)
UNDER = {"parent": "org", "tree_id": "t"}

REFUSED: dict[str, dict[str, Any]] = {
    "exists": raw("dev"),
    "namespaceBound": raw("x", annotations={"namespaces": '["one"]'}),
    "negative": raw("x", max={"cpu": "-1"}),
    "minMax": raw("x", min={"cpu": "11"}),
    "sharedWeightParse": raw("x", annotations={"shared_weight": "{bad"}),
    "strictParse": raw("x", annotations={"max_strict_check_resource_keys": "bad"}),
    "strictBelowUsed": raw(
        "x", annotations={"max_strict_check_resource_keys": '["cpu"]'}, status={"used": {"cpu": "11"}}
    ),
    "strictMissing": raw("x", annotations={"max_strict_check_resource_keys": '["gpu"]'}, status={"used": {"gpu": "1"}}),
    "treeID": raw("x", labels={"parent": "org", "tree_id": "other"}),
    "parentMissing": raw("x", labels={"parent": "gone"}),
    "parentNotParent": raw("x", labels={"parent": "flat"}),
    "keys": raw("x", labels=UNDER, max={"cpu": "1", "memory": "1"}),
    "minSum": raw("x", labels=UNDER, min={"cpu": "4"}),
}


@pytest.mark.parametrize("code", REFUSED)
def test_each_rule_refuses_alone_and_its_text_names_the_quota(code: str) -> None:
    with pytest.raises(AdmissionRejected) as refused:
        check_create(TREE, REFUSED[code], Rules())
    assert refused.value.code == code
    assert REFUSED[code]["metadata"]["name"] in str(refused.value)


def test_the_rejection_of_a_min_names_the_change_that_would_help() -> None:
    with pytest.raises(AdmissionRejected, match=r"lower its min, or raise that of org$"):
        check_create(TREE, raw("x", labels=UNDER, min={"cpu": "4"}), Rules())
    lower = raw("org", labels={"is_parent": "true", "tree_id": "t"}, min={"cpu": "1"}, max={"cpu": "20"})
    old = raw("org", labels={"is_parent": "true", "tree_id": "t"}, min={"cpu": "8"}, max={"cpu": "20"})
    text = r"have a min of cpu 5, above its own, cpu 1: raise its min, or lower those of its children$"
    with pytest.raises(AdmissionRejected, match=text):
        check_update(TREE, old, lower, PodsOf(), Rules())


def test_a_parent_below_the_quota_itself_is_rejected_also_where_all_minima_are_zero() -> None:
    parents = {"a": ROOT, "b": "a", "c": "b"}
    chain = [raw(name, labels={"parent": above, "is_parent": "true"}) for name, above in parents.items()]
    topology = Topology(map(declared, chain))
    moved = raw("a", labels={"parent": "c", "is_parent": "true"})
    with pytest.raises(AdmissionRejected, match=r"a, c, b, a") as rejected:
        check_update(topology, chain[0], moved, PodsOf(), Rules())
    assert rejected.value.code == "parentCycle"
    topology.drop("a")
    with pytest.raises(AdmissionRejected, match=r"a, c, b, a"):
        check_create(topology, moved, Rules())


def test_what_obeys_is_declared() -> None:
    quota = check_create(TREE, raw("x", labels=UNDER, min={"cpu": "3"}), Rules())
    assert (quota.parent, quota.min, quota.weight) == ("org", {"cpu": 3_000}, {"cpu": 10_000})


def test_a_new_quota_gets_parent_tree_and_weight() -> None:
    given = completed(TREE, raw("x", labels={"parent": "org"}, annotations={"shared_weight": '{"gpu":"1"}'}))
    quota = declared(given)
    assert (quota.parent, quota.tree, quota.weight) == ("org", "t", {"cpu": 10_000})
    assert declared(completed(TREE, raw("x"))).parent == ROOT


def test_a_change_of_a_weight_alone_is_not_looked_at() -> None:
    bad = raw("dev", annotations={"shared_weight": "{bad"}, min={"cpu": "99"})
    old = raw("dev", min={"cpu": "99"})
    assert check_update(TREE, old, bad, PodsOf(), Rules()).name == "dev"


def test_a_quota_with_children_or_pods_stays() -> None:
    with pytest.raises(AdmissionRejected, match="dev"):
        check_delete(TREE, "org", PodsOf())
    with pytest.raises(AdmissionRejected, match=r"ns/a, ns/b, \.\.\."):
        check_delete(TREE, "dev", PodsOf(labelled={"dev": ["ns/c", "ns/a", "ns/b"]}))
    check_delete(TREE, "dev", PodsOf())


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 12)), max_size=30))
def test_children_never_have_a_larger_min_than_their_parent(writes: list[tuple[int, int, int]]) -> None:
    """I16 of spec/quota.md 7.4: whatever is tried, what was accepted adds up below the first level."""
    topology = Topology()
    for number, above, size in writes:
        name, parent = f"q{number}", ROOT if above >= number else f"q{above}"
        quota = DeclaredQuota(name=name, parent=parent, is_parent=True, min={"cpu": size}, max={"cpu": 12})
        try:
            checked_place(topology, quota, topology.quotas.get(name))
        except AdmissionRejected:
            continue
        topology.put(quota)
        for each in topology.quotas.values():
            children = [topology.quotas[child] for child in topology.children.get(each.name, ())]
            assert sum(child.min["cpu"] for child in children) <= each.min["cpu"]


def test_the_answers_are_upstreams() -> None:
    if not VECTORS.is_file():
        pytest.skip(f"no {VECTORS}")
    cases = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    for case in cases:
        if case["op"] == "quotaTree":
            assert answer(case["input"]) == case["output"], case["case"]


def test_an_amount_that_cannot_be_read_hides_no_negative_one() -> None:
    with pytest.raises(AdmissionRejected, match=r"^quota x: min of cpu is negative; also max of cpu: .*many"):
        read(raw("x", min={"cpu": "-6"}, max={"cpu": "many"}))


def test_an_amount_that_cannot_be_read_hides_no_min_above_its_max() -> None:
    above = "max of memory: .*10GB.*; also min of cpu is above its max"
    with pytest.raises(AdmissionRejected, match=above) as found:
        read(raw("x", min={"cpu": "60", "memory": "1Gi"}, max={"cpu": "10", "memory": "10GB"}))
    assert "min has" not in str(found.value)
