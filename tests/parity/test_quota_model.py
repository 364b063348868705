"""The model of upstream without its quirks gives production's answers: worked examples, recorded cases, any history."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.parity.case_domain import Answer, load
from cli.parity.run_cases import Case, read_cases, without
from cli.parity.upstream.quirk_rules import Predicted
from cli.parity.upstream.quota import admission_cases, runtime_cases
from cli.parity.upstream.quota.quirks import ALL, NONE, Quirk
from cli.parity.upstream.quota.quota_tree import QuotaTree
from shared.kube.elastic_quota import ROOT
from tests.support.hypothesis_examples import examples
from tests.support.quota_cases import add, case, change, drop, node, pod, quota
from tests.support.worked_quotas import EXAMPLES, declared

ROOT_FOLDER = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("KOORD_SHARED") or ROOT_FOLDER.parent / "shared")
VECTORS = Path(os.environ.get("KOORD_VECTORS") or SHARED / "vectors")
MODELS: dict[str, Predicted[Quirk]] = {
    "quota-runtime": runtime_cases.predicted,
    "quota-admission": admission_cases.predicted,
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_runtimes_are_the_specifications(example: str) -> None:
    total, quotas, options, expected = EXAMPLES[example]
    tree = QuotaTree(NONE, scales_min=options.get("scales_min", True), guarantees=options.get("guarantees", False))
    tree.set_total({"cpu": total})
    for each in quotas:
        tree.add_quota(declared(each))
        tree.add_request(each.name, {"cpu": each.pods}, {})
        tree.add_used(each.name, {"cpu": each.used}, {})
    tree.settle()
    assert {name: info.runtime["cpu"] for name, info in tree.quotas.items() if name != ROOT} == expected


@pytest.mark.parametrize("name", MODELS)
def test_with_all_quirks_it_is_upstream_and_without_any_production(name: str) -> None:
    domain = load(name)
    for found in _cases(name):
        assert MODELS[name](found.op, found.input, ALL) == without(found.output, domain.remarks), found.case
        ours, exact = domain.answer(found.op, found.input), MODELS[name](found.op, found.input, NONE)
        if found.op == "preempt":  # the model ends where production's preemption begins
            ours = {key: ours[key] for key in exact}
        assert exact == ours, found.case


def _cases(name: str) -> list[Case]:
    files = [VECTORS / f"{name}.jsonl", VECTORS / "found" / f"{name}.jsonl"]
    cases = [found for file in files if file.is_file() for found in read_cases(file)]
    return cases or pytest.skip(f"no {files[0]}; KOORD_VECTORS names the folder of recorded cases")


SIZES = ("0", "1", "3", "6", "cpu=2 memory=4")
QUOTAS = st.builds(
    lambda name, parent, max_, min_, keeps: quota(
        name, max_, min_, parent=parent if parent < name else "", labels={"allow_lent_resource": keeps}
    ),
    st.sampled_from("abcd"),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(SIZES),
    st.sampled_from(("", *SIZES)),
    st.sampled_from(["true", "false"]),
)
PODS = st.builds(
    lambda name, of, requests, on, phase, preemptible: pod(
        name, of, requests, on=on, phase=phase, is_preemptible=preemptible
    ),
    st.sampled_from("pqr"),
    st.sampled_from(["", "a", "b", "c", "late"]),
    st.sampled_from(SIZES),
    st.sampled_from(["", "n1"]),
    st.sampled_from(["Pending", "Running", "Succeeded"]),
    st.booleans(),
)
NODES = st.builds(node, st.sampled_from(["n1", "n2"]), st.sampled_from(["4", "cpu=8 memory=8"]))


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Objects that come, change and go, each event on an object as the last event left it."""
    there: dict[tuple[str, str], dict[str, Any]] = {}
    events: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 14))):
        thing = draw(st.one_of(QUOTAS, PODS, NODES))
        kind, name = add(thing)["type"], thing["metadata"]["name"]
        old = there.pop((kind, name), None)
        how = draw(st.sampled_from(["change", "change", "drop", "reserve", "unreserve"]))
        if old is None or how == "change":
            if kind == "podAdd":
                thing["metadata"]["resourceVersion"] = str(number)
            events.append(add(thing) if old is None else change(old, thing))
            there[kind, name] = thing
        elif how == "drop" or kind != "podAdd":
            events.append(drop(old))
        else:
            events.append({"type": how, "pod": old})
            there[kind, name] = old
    gates = draw(st.sampled_from([(), ("DisableDefaultQuota",), ("ElasticQuotaGuaranteeUsage",)]))
    return case(*events, gates=gates)


POD = pod("p", "", "3", on="n1")
UNBOUND = pod("p", "", "cpu=2 memory=4", version="2")
SMALLER = pod("p", "", "1", on="n1", version="2")


@settings(max_examples=examples(150), deadline=None)
@given(histories())
@example(case(add(quota("a", "0")), add(quota("b", "cpu=2 memory=4", "cpu=2 memory=4", parent="a"))))
@example(case(add(POD), add(quota("a", "0")), change(POD, SMALLER), gates=("ElasticQuotaGuaranteeUsage",)))
@example(case(add(POD), change(POD, UNBOUND)))
@example(
    case(
        add(quota("a", "0")),
        add(quota("c", "1", "1")),
        change(quota("c", "1", "1"), quota("c", "0", parent="a")),
        gates=("ElasticQuotaGuaranteeUsage",),
    )
)
def test_any_history_without_quirks_is_productions(history: dict[str, Any]) -> None:
    answer: Answer = load("quota-runtime").answer
    assert runtime_cases.predicted("tree", history, NONE) == answer("tree", history)
