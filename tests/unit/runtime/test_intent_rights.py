"""Rights of contexts to carry intents: every context with every intent, and single fields."""

import pytest

from cli.service_list import SERVICES, manifest
from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.runtime.declared_intents import DECLARED, declared_refusal
from shared.runtime.intent_rights import INTENTS, IntentRight, refusal
from tests.support.intents import CONTEXTS, declared_intent, intents_of_all_contexts

NODE_METRICS = "nodemetrics.slo.koordinator.sh"


def test_the_generated_declarations_are_those_of_the_manifests() -> None:
    of_manifests = {one.writes: one.intents for one in map(manifest, SERVICES) if one.intents}
    assert of_manifests == DECLARED


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_carries_the_intents_that_its_service_declares_and_no_other(context: str) -> None:
    own = {right: declared_intent(right) for right in DECLARED.get(context.replace("-0", "-*"), ())}
    for right, event in intents_of_all_contexts():
        covered = right in own or any(
            not refusal(context, [mine], event) for mine in own
        )  # two contexts may declare parts of one object
        assert (declared_refusal(context, event) == "") is covered, (context, right)
    assert all(declared_refusal(context, event) == "" for event in own.values())


def test_the_matrix_has_every_type_of_intent() -> None:
    assert {type(event) for _, event in intents_of_all_contexts()} == set(INTENTS)


@pytest.mark.parametrize(
    ("context", "event"),
    [
        ("metrics-0", FieldsDesired(resource="nodes", name="n", fields="x", patch={"spec": {"unschedulable": True}})),
        ("metrics-0", EvictionRequested(pod="a/b", pod_uid="u", reason="hot")),
        ("metrics-0", PodPlaced(pod="a/b", pod_uid="u", node="n", cycle=1, request={})),
        ("scheduling", PodPlaced(pod="a/b", pod_uid="u", node="n", cycle=1, request={}, node_lock="example.com/lock")),
        ("nodes-0", PodUnschedulable(pod="a/b", pod_uid="u", cycle=1, code="x", message="x")),
        ("cluster", EvictionRequested(pod="a/b", pod_uid="u", reason="hot")),
        ("unknown", ObjectDesired(resource=NODE_METRICS, name="n", body={})),
        ("audit", ObjectDesired(resource="configmaps", name="kube-system/other", body={"data": {}})),
        ("slo", ObjectDesired(resource=NODE_METRICS, name="n", body={})),
        ("scheduling", ObjectDesired(resource="scheduleexplanations.scheduling.koordinator.sh", name="a/b", body={})),
        ("quota", ObjectDesired(resource="elasticquotas.scheduling.sigs.k8s.io", name="a/b", body=None)),
    ],
)
def test_what_a_context_does_not_declare_is_refused(context: str, event: Event) -> None:
    assert declared_refusal(context, event).startswith(f"{context} does not declare")


@pytest.mark.parametrize(
    ("subresource", "patch", "refused"),
    [
        ("status", {"status": {"nodeMetric": {"nodeUsage": {}}}}, ""),
        ("status", {}, ""),
        ("", {"status": {"updateTime": "x"}}, "nodemetrics.slo.koordinator.sh n"),
        ("status/../../pods/a", {"status": {"updateTime": "x"}}, "nodemetrics.slo.koordinator.sh/status/../../pods/a"),
        ("status", {"status": {}, "metadata": {"labels": {"forged": "yes"}}}, "metadata of"),
        ("status", {"metadata": None}, "metadata of"),
        ("status", {"statusx": {}}, "statusx of"),
    ],
)
def test_a_patch_may_set_declared_fields_only(subresource: str, patch: dict[str, object], refused: str) -> None:
    event = FieldsDesired(resource=NODE_METRICS, name="n", fields="f", patch=patch, subresource=subresource)
    found = declared_refusal("metrics-0", event)
    assert refused in found if refused else not found


@pytest.mark.parametrize(
    ("patch", "refused"),
    [
        ({"metadata": {"annotations": {"own/a": "1", "own/b": None}}}, ""),
        ({"metadata": {"annotations": {"own/a": "1", "other/b": "1"}}}, "metadata.annotations.other/b"),
        ({"metadata": {"annotations": {}}}, "metadata.annotations"),
        ({"metadata": {"annotations": None}}, "metadata.annotations"),
        ({"metadata": {"finalizers": ["x"]}}, "metadata.finalizers"),
        ({"metadata": {"annotations": "text"}}, "metadata.annotations"),
        ({"spec": {"claimRef": {"name": "c"}}}, ""),
        ({"spec": {"claimReference": {"name": "c"}}}, "spec.claimReference"),
        ({"spec": None}, "spec"),
    ],
)
def test_a_declared_path_covers_what_lies_below_it_and_nothing_beside_it(
    patch: dict[str, object], refused: str
) -> None:
    right = IntentRight(FieldsDesired, "volumes", fields=("metadata.annotations.own/*", "spec.claimRef"))
    event = FieldsDesired(resource="volumes", name="v", fields="f", patch=patch)
    found = refusal("scheduling", [right], event)
    assert found == (f"scheduling does not declare {refused} of volumes" if refused else "")


def test_rights_to_one_object_add_up() -> None:
    rights = [IntentRight(ObjectDesired, "x", fields=("spec",)), IntentRight(ObjectDesired, "x", fields=("data",))]
    assert refusal("c", rights, ObjectDesired(resource="x", name="n", body={"spec": 1, "data": 2})) == ""
    assert refusal("c", rights, ObjectDesired(resource="x", name="n", body=None))
