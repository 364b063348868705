"""Validation of what a tenant writes on its own pods to the disadvantage of others: allocations that only this system
decides, quotas of other teams, a priority band above that of the pod, protection from the out-of-memory killer.

Allocations are refused by default. The other rules have gates that are off by default, since upstream admits such pods.
"""

from collections.abc import Mapping

import msgspec

from shared.admission.feature_gates import Gates
from shared.admission.pod.pod_json import Raw, annotations_of, key_of, labels_of, pod_of
from shared.admission.pod.pod_quota import Quotas, of_namespace
from shared.admission.rejection import AdmissionRejected
from shared.domain.priority import LABEL as PRIORITY_CLASS
from shared.domain.priority import raw_priority
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.json_text import read_json
from shared.kube.oom_score_annotations import OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC
from shared.kube.pod import Pod
from shared.kube.system_annotations import SYSTEM_ANNOTATIONS

ALLOCATIONS = "ProtectAllocationAnnotations"
OWN_QUOTA = "RequireQuotaOfNamespace"
OWN_BAND = "RequirePriorityClassOfPriority"
OOM_SCORE = "RestrictOOMScoreAdj"

ALLOWS_NEGATIVE = "koordinator.sh/allow-negative-oom-score-adj"
"""Label of a namespace whose pods may lower their score, with the value `true`."""


def check_tenant(
    pod: Raw,
    old: Raw | None,
    namespace: str,
    gates: Gates,
    *,
    quotas: Quotas,
    namespaces: Mapping[str, Raw],
    by_system: bool,
) -> None:
    """Checks the labels and annotations of a new or changed pod.

    Args:
        old: the pod before an update; None at its creation. What does not change is not checked.
        by_system: the gateway itself makes the request.

    Raises:
        AdmissionRejected: `allocation`, `quotaOwner`, `priorityBand`, `oomScore`.
    """
    if ALLOCATIONS in gates and not by_system:
        _check_allocations(pod, old)
    if OWN_QUOTA in gates:
        _check_quota(pod, old, namespace, quotas)
    if OWN_BAND in gates:
        _check_band(pod, old)
    if OOM_SCORE in gates and labels_of(namespaces.get(namespace) or {}).get(ALLOWS_NEGATIVE) != "true":
        _check_oom_score(pod, old)


def _check_allocations(pod: Raw, old: Raw | None) -> None:
    before, after = annotations_of(old or {}), annotations_of(pod)
    for name in SYSTEM_ANNOTATIONS:
        if before.get(name) != after.get(name):
            raise AdmissionRejected(
                "allocation",
                f"pod {key_of(pod)}: only the scheduler writes the annotation {name}; leave it as it is"
                if name in before
                else f"pod {key_of(pod)}: only the scheduler writes the annotation {name}; remove it",
            )


def _check_quota(pod: Raw, old: Raw | None, namespace: str, quotas: Quotas) -> None:
    named = labels_of(pod).get(QUOTA_NAME)
    if not named or (old is not None and labels_of(old).get(QUOTA_NAME) == named):
        return
    quota = quotas.get(named)
    if quota is not None and namespace not in (quota.namespace, *quota.namespaces):
        own = of_namespace(namespace, quotas) or "none"
        raise AdmissionRejected(
            "quotaOwner",
            f"pod {key_of(pod)}: quota {named} belongs to namespace {quota.namespace}, and is not bound to {namespace}"
            f" (quota of this namespace: {own}); name a quota of its own in the label {QUOTA_NAME}",
        )


def _check_band(pod: Raw, old: Raw | None) -> None:
    label = labels_of(pod).get(PRIORITY_CLASS)
    if not label or (old is not None and labels_of(old).get(PRIORITY_CLASS) == label):
        return
    typed = pod_of(pod)
    labels = {name: text for name, text in (typed.metadata.labels or {}).items() if name != PRIORITY_CLASS}
    metadata = msgspec.structs.replace(typed.metadata, labels=labels)
    if (band := raw_priority(Pod(metadata=metadata, spec=typed.spec)).value) != label:
        raise AdmissionRejected(
            "priorityBand",
            f"pod {key_of(pod)}: the label {PRIORITY_CLASS} is {label}, and spec.priority is of {band or 'no class'};"
            " make them equal",
        )


def _check_oom_score(pod: Raw, old: Raw | None) -> None:
    before, after = annotations_of(old or {}), annotations_of(pod)
    texts = {name: after.get(name, "") for name in (OOM_SCORE_ADJ, OOM_SCORE_ADJ_SPEC)}
    if all(before.get(name, "") == text for name, text in texts.items()):
        return
    if texts[OOM_SCORE_ADJ].strip().startswith("-") or any(score < 0 for score in _scores(texts[OOM_SCORE_ADJ_SPEC])):
        raise AdmissionRejected(
            "oomScore",
            f"pod {key_of(pod)}: a negative oom_score_adj takes memory from others; give 0 to 1000, or have the"
            f" namespace labelled {ALLOWS_NEGATIVE}=true",
        )


def _scores(text: str) -> list[int]:
    """Returns the values by container; none of a text that agents cannot read either."""
    try:
        return list(read_json(text, dict[str, int]).values()) if text else []
    except msgspec.MsgspecError:
        return []
