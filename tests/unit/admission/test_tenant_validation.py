"""Rules about what a tenant writes on its own pods to the disadvantage of others."""

from typing import Any

import pytest

from shared.admission.feature_gates import gates_of
from shared.admission.pod.pod_admission import PodWorld, check
from shared.admission.pod.tenant_validation import ALLOWS_NEGATIVE
from shared.admission.rejection import AdmissionRejected
from shared.kube.elastic_quota import QUOTA_NAME, DeclaredQuota
from shared.kube.oom_score_annotations import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC
from shared.kube.system_annotations import RESOURCE_STATUS, SYSTEM_ANNOTATIONS
from tests.unit.admission.objects import pod

QUOTAS = {
    "team-a": DeclaredQuota(name="team-a", namespace="web"),
    "team-b": DeclaredQuota(name="team-b", namespace="other", namespaces=("shared",)),
}


def annotated(**annotations: str) -> dict[str, Any]:
    made = pod()
    made["metadata"]["annotations"] = annotations
    return made


def refusal(
    after: dict[str, Any], gates: str = "", old: dict[str, Any] | None = None, *, by_system: bool = False, **parts: Any
) -> str:
    world = PodWorld(gates=gates_of(gates), quotas=QUOTAS, **parts)
    try:
        check(world, after, old, "web", by_system=by_system)
    except AdmissionRejected as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("name", SYSTEM_ANNOTATIONS)
def test_an_allocation_is_refused_from_everyone_but_this_system(name: str) -> None:
    forged, bare = annotated(**{name: "{}"}), pod()
    assert refusal(forged) == "allocation"
    assert refusal(forged, old=bare) == "allocation"
    assert refusal(bare, old=forged) == "allocation"
    assert refusal(annotated(**{name: "[]"}), old=forged) == "allocation"
    assert refusal(forged, old=forged) == "", "an update of something else"
    assert refusal(forged, old=bare, by_system=True) == ""
    assert refusal(forged, "ProtectAllocationAnnotations=false") == ""


def test_a_best_effort_pod_cannot_claim_cpus() -> None:  # fault 08
    liar = annotated(**{RESOURCE_STATUS: '{"cpuset":"0-63"}'})
    liar["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}
    assert refusal(liar) == "allocation"


def test_a_gate_keeps_pods_in_the_quotas_of_their_namespace() -> None:
    gate = "RequireQuotaOfNamespace=true"
    theirs, ours, unknown = (pod(labels={QUOTA_NAME: name}) for name in ("team-b", "team-a", "nobody"))
    assert refusal(theirs) == ""
    assert refusal(theirs, gate) == "quotaOwner"
    assert refusal(ours, gate) == ""
    assert refusal(unknown, gate) == "", "an unknown name means the default quota"
    assert refusal(theirs, gate, old=theirs) == ""
    assert refusal(theirs, gate, old=ours) == "quotaOwner"


def test_a_gate_keeps_the_label_of_the_class_and_the_priority_equal() -> None:
    gate = "RequirePriorityClassOfPriority=true"
    climber = pod(labels={"koordinator.sh/priority-class": "koord-prod"}, priority=5500)
    honest = pod(labels={"koordinator.sh/priority-class": "koord-prod"}, priority=9500)
    assert refusal(climber) == ""
    assert refusal(climber, gate) == "priorityBand"
    assert refusal(honest, gate) == ""
    assert refusal(pod(labels={"koordinator.sh/priority-class": "koord-prod"}), gate) == "priorityBand"


def test_a_gate_refuses_negative_scores_outside_of_labelled_namespaces() -> None:
    gate = "RestrictOOMScoreAdj=true"
    low, spec = annotated(**{OOM_SCORE_ADJ: "-1000"}), annotated(**{OOM_SCORE_ADJ_SPEC: '{"main":-5}'})
    assert refusal(low) == ""
    assert {refusal(low, gate), refusal(spec, gate)} == {"oomScore"}
    assert refusal(low, gate, old=low) == ""
    assert {refusal(annotated(**{OOM_SCORE_ADJ: text}), gate) for text in ("500", "", "x")} == {""}
    assert refusal(annotated(**{OOM_SCORE_ADJ_SPEC: "no json"}), gate) == ""
    allowed = {"web": {"metadata": {"name": "web", "labels": {ALLOWS_NEGATIVE: "true"}}}}
    assert refusal(low, gate, namespaces=allowed) == ""
