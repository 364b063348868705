"""Admission of a pod: the steps in upstream's order, each under its feature gate.

Source: spec/api.md 5.2, 5.4.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.admission.feature_gates import Gates
from shared.admission.pod import extended_resource_spec, gpu_resources
from shared.admission.pod.colocation_profile import Draw, applied, matching
from shared.admission.pod.pod_json import Raw, copy_of
from shared.admission.pod.pod_quota import check_quota, keep_to_tree
from shared.admission.pod.qos_validation import RequiredLabels, check_colocation, check_reservation
from shared.admission.pod.tenant_validation import check_tenant
from shared.kube.elastic_quota import DeclaredQuota


class PodWorld(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the rules about pods depend on, besides the pod.

    Attributes:
        profiles: ClusterColocationProfile objects.
        namespaces, classes: Namespace and PriorityClass objects by name.
        quota_profiles: ElasticQuotaProfile objects.
    """

    gates: Gates
    profiles: Sequence[Raw] = ()
    namespaces: Mapping[str, Raw] = {}
    classes: Mapping[str, Raw] = {}
    quotas: Mapping[str, DeclaredQuota] = {}
    quota_profiles: Sequence[Raw] = ()
    required_labels: RequiredLabels = RequiredLabels()


def mutated(
    world: PodWorld, pod: Raw, namespace: str, draw: Draw, chosen: Sequence[Raw] | None = None
) -> dict[str, Any]:
    """Applies defaults and profiles to a pod at its creation.

    Args:
        chosen: the profiles that select it, where the caller has them.

    Raises:
        AdmissionRejected: a profile that selects it cannot be applied.
    """
    gates, result = world.gates, copy_of(pod)
    if chosen is None:
        chosen = matching(result, namespace, world.profiles, world.namespaces)
    if chosen:
        translates = "ColocationProfileSkipMutatingResources" not in gates
        result = applied(result, chosen, world.classes, draw, translates=translates)
    if "DisableExtendedResourceSpec" not in gates:
        extended_resource_spec.annotate(result)
    if "MultiQuotaTree" in gates:
        keep_to_tree(result, namespace, world.quotas, world.quota_profiles)
    if "DisableDeviceResourceSpec" not in gates:
        gpu_resources.expand_gpu_requests(result)
    return result


def check(world: PodWorld, pod: Raw, old: Raw | None, namespace: str, *, by_system: bool = False) -> None:
    """Validates a new or changed pod.

    Args:
        old: the pod before an update; None at its creation.
        by_system: the gateway itself makes the request.

    Raises:
        AdmissionRejected: the first group of rules that it violates: `reservation`, one of `tenant_validation`,
            `colocation`, `quotaMeta`, `device`, `enhanced`.
    """
    check_reservation(pod)
    check_tenant(
        pod, old, namespace, world.gates, quotas=world.quotas, namespaces=world.namespaces, by_system=by_system
    )
    check_colocation(pod, old, world.gates)
    check_quota(pod, old, namespace, world.quotas, world.gates)
    if "ValidatePodDeviceResource" in world.gates:
        gpu_resources.check(pod)
    if "RequirePlaceableDevices" in world.gates:
        gpu_resources.check_placeable(pod)
    if "EnablePodEnhancedValidator" in world.gates:
        world.required_labels.check(pod, namespace)
