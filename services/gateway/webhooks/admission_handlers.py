"""Handlers of admission requests: the rules of shared/admission over the folded State.

An admitted object reaches the State by a watch, like any other; until then `RecentQuotas` keeps admitted quotas.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.admission_state import CLASSES, NAMESPACES, PROFILES, QUOTA_PROFILES, AdmissionState
from services.gateway.webhooks.recent_quotas import RecentQuotas
from shared.admission.feature_gates import Gates
from shared.admission.node_amplification import amplified
from shared.admission.pod import pod_admission
from shared.admission.pod.colocation_profile import applied_to_reservation, matching
from shared.admission.pod.pod_json import annotations_of
from shared.admission.pod.qos_validation import REQUIRED_LABELS, RequiredLabels
from shared.admission.quota import quota_validation
from shared.admission.quota.quota_topology import Topology
from shared.admission.quota.quota_validation import PodsOf, Rules
from shared.admission.slo_config import configmap_validation

Raw = dict[str, Any]

APPLIED_PROFILES = "config.koordinator.sh/colocation-profiles"
"""Annotation of a pod: names of the profiles that selected it at its creation, comma-separated."""


class AdmissionSettings(NamedTuple):
    """Settings of the rules.

    Attributes:
        namespace: namespace of slo-controller-config and of the ConfigMap of required labels.
        names: each node strategy needs a unique name.
        account: user name of this gateway, which may label pods that were created past the webhooks.
    """

    gates: Gates
    namespace: str
    names: bool = False
    account: str = ""


class QuotaPod(NamedTuple):
    """A pod's key and the quota that its label names."""

    key: str
    quota: str


class AdmissionHandlers:
    """Handlers of all webhooks over one State."""

    def __init__(
        self,
        state: AdmissionState,
        pods: Callable[[], Iterable[QuotaPod]],
        settings: AdmissionSettings,
        recent: RecentQuotas | None = None,
    ) -> None:
        """Sets the sources.

        Args:
            pods: returns all pods; called only by rules that need them.
            recent: quotas that were admitted and are not observed yet.
        """
        self.state = state
        self.settings = settings
        self._pods = pods
        self._recent = recent

    def has_namespace(self, name: str) -> bool:
        """Returns whether a namespace has been observed."""
        return name in self.state.by_name(NAMESPACES)

    def world(self) -> pod_admission.PodWorld:
        """Returns the objects that the rules of pods read."""
        state, settings = self.state, self.settings
        return pod_admission.PodWorld(
            gates=settings.gates,
            profiles=state.objects(PROFILES),
            namespaces=state.by_name(NAMESPACES),
            classes=state.by_name(CLASSES),
            quotas=self._topology().quotas,
            quota_profiles=state.objects(QUOTA_PROFILES),
            required_labels=state.required.get(f"{settings.namespace}/{REQUIRED_LABELS}", RequiredLabels()),
        )

    # -- pods

    def mutate_pod(self, request: Request) -> Raw | None:
        """Returns a created pod after the profiles and the other mutations."""
        if request.operation != "CREATE" or request.sub_resource or request.object is None:
            return None
        world = self.world()
        chosen = matching(request.object, request.namespace, world.profiles, world.namespaces)
        after = pod_admission.mutated(world, request.object, request.namespace, percent_draw(request.uid), chosen)
        if chosen:
            annotations = after.setdefault("metadata", {}).setdefault("annotations", {})
            annotations[APPLIED_PROFILES] = ",".join(profile["metadata"]["name"] for profile in chosen)
        return after

    def validate_pod(self, request: Request) -> None:
        """Checks a created or changed pod."""
        pod, old = request.object, request.old_object
        if request.sub_resource or pod is None:
            return
        if old is not None and self._is_late_admission(request, pod, old):
            return
        pod_admission.check(self.world(), pod, old, request.namespace, by_system=self._is_by_us(request))

    def _is_by_us(self, request: Request) -> bool:
        return bool(self.settings.account) and request.user_info.username == self.settings.account

    def _is_late_admission(self, request: Request, pod: Raw, old: Raw) -> bool:
        """Returns whether this is the gateway's own late admission, which may set the pod's classes once."""
        return (
            self._is_by_us(request)
            and APPLIED_PROFILES in annotations_of(pod)
            and APPLIED_PROFILES not in annotations_of(old)
        )

    # -- nodes and configuration

    def mutate_node_status(self, request: Request) -> Raw | None:
        """Returns a node after amplification, when its status is updated."""
        if request.operation != "UPDATE" or request.object is None or request.old_object is None:
            return None
        return amplified(request.object, request.old_object)

    def validate_node(self, request: Request) -> None:
        """Checks a changed node against the node strategies of the SLO configuration."""
        if request.operation == "UPDATE" and request.object is not None and request.old_object is not None:
            stored = self.state.config_map(f"{self.settings.namespace}/{configmap_validation.NAME}")
            configmap_validation.check_node(stored, request.object, request.old_object)

    def validate_config_map(self, request: Request) -> None:
        """Checks the configuration of the SLO controller."""
        if request.operation != "DELETE" and request.object is not None:
            namespace, names = self.settings.namespace, self.settings.names
            configmap_validation.check_config_map(
                request.object, request.old_object, self.state.nodes, namespace=namespace, names=names
            )

    # -- quotas and reservations

    def mutate_quota(self, request: Request) -> Raw | None:
        """Returns a created quota with its defaults."""
        if request.operation != "CREATE" or request.object is None:
            return None
        return quota_validation.completed(self._topology(), request.object)

    def validate_quota(self, request: Request) -> None:
        """Checks a created, changed or deleted quota."""
        name = request.subject["metadata"]["name"]
        topology, rules = self._topology(but=name), self._rules()
        if request.operation == "DELETE":
            quota_validation.check_delete(topology, name, self._pods_of())
        elif request.object is None:
            return
        elif request.old_object is None:
            quota_validation.check_create(topology, request.object, rules)
        else:
            quota_validation.check_update(topology, request.old_object, request.object, self._pods_of(), rules)
        if self._recent is not None and not request.dry_run:
            self._recent.record(name, request.object)

    def _topology(self, but: str = "") -> Topology:
        observed = self.state.topology
        return observed if self._recent is None else self._recent.overlay(observed, but)

    def mutate_reservation(self, request: Request) -> Raw | None:
        """Returns a created Reservation after the profiles."""
        if request.operation != "CREATE" or request.object is None:
            return None
        profiles, classes = self.state.objects(PROFILES), self.state.by_name(CLASSES)
        return applied_to_reservation(request.object, profiles, classes, percent_draw(request.uid))

    def _rules(self) -> Rules:
        gates = self.settings.gates
        return Rules(
            guarantees="ElasticQuotaGuaranteeUsage" in gates,
            keys_may_differ="ElasticQuotaEnableUpdateResourceKey" in gates,
        )

    def _pods_of(self) -> PodsOf:
        labelled: dict[str, list[str]] = {}
        namespaces: set[str] = set()
        for pod in self._pods():
            namespaces.add(pod.key.partition("/")[0])
            if pod.quota:
                labelled.setdefault(pod.quota, []).append(pod.key)
        return PodsOf(labelled=labelled, namespaces=frozenset(namespaces))


def percent_draw(uid: str) -> Callable[[str], int]:
    """Returns a function from a profile's name to 0..99, the same for each evaluation of one admission request."""

    def draw(profile: str) -> int:
        return int.from_bytes(blake2b(f"{uid} {profile}".encode(), digest_size=8).digest()) % 100

    return draw


Handler = Callable[[AdmissionHandlers, Request], Raw | None]
