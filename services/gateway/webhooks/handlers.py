"""What is answered to each question: the rules of shared/admission over the followed state.

What comes of an answer is observed like everything else; until then `recent` remembers the quotas that were let in.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.admission_state import CLASSES, NAMESPACES, PROFILES, QUOTA_PROFILES, AdmissionView
from services.gateway.webhooks.recent_quotas import Recent
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

MARK = "config.koordinator.sh/colocation-profiles"
"""Annotation on a pod: the profiles that have selected it at its creation, comma-separated."""


class Terms(NamedTuple):
    """What was configured.

    Attributes:
        namespace: where slo-controller-config and the other ConfigMap are.
        names: whether node strategies need names of their own.
        account: this gateway's own user; it may label pods that came in past the webhooks.
    """

    gates: Gates
    namespace: str
    names: bool = False
    account: str = ""


class Held(NamedTuple):
    """A pod as far as quotas ask."""

    key: str
    quota: str


class Desk:
    """Answers questions from one view."""

    def __init__(
        self, view: AdmissionView, held: Callable[[], Iterable[Held]], terms: Terms, recent: Recent | None = None
    ) -> None:
        """Remember where to look.

        Args:
            held: all pods there are; asked for only where a rule needs them.
            recent: quotas that were answered and are not observed yet.
        """
        self.view = view
        self.terms = terms
        self._held = held
        self._recent = recent

    def knows_namespace(self, name: str) -> bool:
        """Whether a namespace has been observed."""
        return name in self.view.by_name(NAMESPACES)

    def world(self) -> pod_admission.PodWorld:
        """What the rules about pods look at."""
        view, terms = self.view, self.terms
        return pod_admission.PodWorld(
            gates=terms.gates,
            profiles=view.objects(PROFILES),
            namespaces=view.by_name(NAMESPACES),
            classes=view.by_name(CLASSES),
            quotas=self._topology().quotas,
            quota_profiles=view.objects(QUOTA_PROFILES),
            required_labels=view.required.get(f"{terms.namespace}/{REQUIRED_LABELS}", RequiredLabels()),
        )

    # -- pods

    def mutate_pod(self, request: Request) -> Raw | None:
        """A pod that is created, after the profiles and the other steps."""
        if request.operation != "CREATE" or request.sub_resource or request.object is None:
            return None
        world = self.world()
        chosen = matching(request.object, request.namespace, world.profiles, world.namespaces)
        after = pod_admission.mutated(world, request.object, request.namespace, draw_of(request.uid), chosen)
        if chosen:
            marks = after.setdefault("metadata", {}).setdefault("annotations", {})
            marks[MARK] = ",".join(profile["metadata"]["name"] for profile in chosen)
        return after

    def validate_pod(self, request: Request) -> None:
        """A pod that is created or changed."""
        pod, old = request.object, request.old_object
        if request.sub_resource or pod is None:
            return
        if old is not None and self._is_ours(request, pod, old):
            return
        pod_admission.check(self.world(), pod, old, request.namespace)

    def _is_ours(self, request: Request, pod: Raw, old: Raw) -> bool:
        """Whether this is what we do to a pod that came in past the webhooks: its classes change once."""
        by_us = bool(self.terms.account) and request.user_info.username == self.terms.account
        return by_us and MARK in annotations_of(pod) and MARK not in annotations_of(old)

    # -- nodes and configuration

    def mutate_node_status(self, request: Request) -> Raw | None:
        """A node whose status is reported."""
        if request.operation != "UPDATE" or request.object is None or request.old_object is None:
            return None
        return amplified(request.object, request.old_object)

    def validate_node(self, request: Request) -> None:
        """A node whose labels change."""
        if request.operation == "UPDATE" and request.object is not None and request.old_object is not None:
            stored = self.view.config_map(f"{self.terms.namespace}/{configmap_validation.NAME}")
            configmap_validation.check_node(stored, request.object, request.old_object)

    def validate_config_map(self, request: Request) -> None:
        """The configuration of the SLO controller."""
        if request.operation != "DELETE" and request.object is not None:
            namespace, names = self.terms.namespace, self.terms.names
            configmap_validation.check_config_map(
                request.object, request.old_object, self.view.nodes, namespace=namespace, names=names
            )

    # -- quotas and reservations

    def mutate_quota(self, request: Request) -> Raw | None:
        """A quota that is created, with its defaults."""
        if request.operation != "CREATE" or request.object is None:
            return None
        return quota_validation.completed(self._topology(), request.object)

    def validate_quota(self, request: Request) -> None:
        """A quota that is created, changed or deleted."""
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
            self._recent.note(name, request.object)

    def _topology(self, but: str = "") -> Topology:
        observed = self.view.topology
        return observed if self._recent is None else self._recent.over(observed, but)

    def mutate_reservation(self, request: Request) -> Raw | None:
        """A Reservation that is created, after the profiles."""
        if request.operation != "CREATE" or request.object is None:
            return None
        profiles, classes = self.view.objects(PROFILES), self.view.by_name(CLASSES)
        return applied_to_reservation(request.object, profiles, classes, draw_of(request.uid))

    def _rules(self) -> Rules:
        gates = self.terms.gates
        return Rules(
            guarantees="ElasticQuotaGuaranteeUsage" in gates,
            keys_may_differ="ElasticQuotaEnableUpdateResourceKey" in gates,
        )

    def _pods_of(self) -> PodsOf:
        labelled: dict[str, list[str]] = {}
        namespaces: set[str] = set()
        for pod in self._held():
            namespaces.add(pod.key.partition("/")[0])
            if pod.quota:
                labelled.setdefault(pod.quota, []).append(pod.key)
        return PodsOf(labelled=labelled, namespaces=frozenset(namespaces))


def draw_of(uid: str) -> Callable[[str], int]:
    """0..99 for a profile's name, the same each time the same admission is judged."""

    def draw(profile: str) -> int:
        return int.from_bytes(blake2b(f"{uid} {profile}".encode(), digest_size=8).digest()) % 100

    return draw


Answer = Callable[[Desk, Request], Raw | None]
Objects = Mapping[str, Any]
