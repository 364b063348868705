"""DefaultEvictor as a filter: protections of pods, of kubernetes-sigs/descheduler.

Pods are moved by MigrationController alone: each needs a place before it leaves, and DefaultEvictor holds none.

Source: spec/descheduler.md 4.3.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, Protocol

from msgspec import Meta, field

from services.descheduler.framework.cycle_context import Filter
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.migration.controller_args import PriorityThreshold
from services.descheduler.migration.eviction_checks import is_of_daemon_set, leaving_is_senseless
from services.descheduler.migration.filter_chain import is_forced
from services.descheduler.plugins.pod_status_facts import elapsed_s
from services.descheduler.plugins.priority_order import prefers_no_eviction
from services.descheduler.state.observed_cluster import ObservedCluster
from shared.domain.component_config import BadConfig, Strict, check_one_of, check_selector, converted, duration
from shared.domain.node_selection import meets
from shared.domain.priority import SYSTEM_CRITICAL
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.kube.selectors import LabelSelector

LOCAL_STORAGE, DAEMON_SET, CRITICAL, FAILED_BARE = (
    "PodsWithLocalStorage", "DaemonSetPods", "SystemCriticalPods", "FailedBarePods",
)  # fmt: skip
WITH_CLAIM, WITHOUT_BUDGET = "PodsWithPVC", "PodsWithoutPDB"
BY_DEFAULT, EXTRA = (LOCAL_STORAGE, DAEMON_SET, CRITICAL, FAILED_BARE), (WITH_CLAIM, WITHOUT_BUDGET)
PREFERRED, MANDATORY = "Preferred", "Mandatory"


class StorageClassDocument(Strict):
    """A storage class whose pods are protected."""

    name: str


class ClaimConfigDocument(Strict):
    """Which claims protect their pods."""

    protected_storage_classes: list[StorageClassDocument] = field(default_factory=list)


class ProtectionConfigDocument(Strict):
    """Settings of protections, by their names."""

    with_claim: ClaimConfigDocument | None = field(default=None, name=WITH_CLAIM)


class ProtectionsDocument(Strict):
    """Protections on top of those by default, and those by default that are off."""

    extra_enabled: list[str] = field(default_factory=list)
    default_disabled: list[str] = field(default_factory=list)
    config: ProtectionConfigDocument | None = None


class _Document(Strict):
    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: Annotated[int, Meta(ge=0)] = 0
    min_pod_age: str | None = None
    no_eviction_policy: str = PREFERRED
    pod_protections: ProtectionsDocument = field(default_factory=ProtectionsDocument)
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    evict_failed_bare_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = field(default=False, name="ignorePodsWithoutPDB")


class EvictorArgs(NamedTuple):
    """The arguments.

    Attributes:
        protections: those in force.
        threshold: priorities from here on are protected while `CRITICAL` is in force; None: those of the system alone.
        min_replicas: pods stay whose controller has fewer; up to 1 for no such check.
        min_age_s: pods stay that have run for a shorter time, or not yet; None: no such check.
        mandatory: the annotation that prefers no eviction forbids it.
        notes: what of the arguments works otherwise.
    """

    selector: LabelSelector | None
    namespace_selector: LabelSelector | None
    threshold: int | None
    min_replicas: int
    min_age_s: float | None
    mandatory: bool
    protections: frozenset[str]
    notes: tuple[str, ...]


class Inputs(Protocol):
    """The State of the descheduler, as far as the filter reads it."""

    cluster: ObservedCluster


def read_args(plain: Mapping[str, Any], path: str) -> EvictorArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value.
    """
    given = converted(dict(plain), _Document, path)
    check_selector(given.label_selector, f"{path}.labelSelector")
    check_selector(given.namespace_label_selector, f"{path}.namespaceLabelSelector")
    check_one_of(given.no_eviction_policy, (PREFERRED, MANDATORY), f"{path}.noEvictionPolicy")
    threshold = given.priority_threshold or PriorityThreshold()
    if threshold.name:
        raise BadConfig(
            f"{path}.priorityThreshold.name", f"{threshold.name!r} is not looked up; give the class's value"
        )
    notes = ["nodeFit and nodeSelector have no effect: the scheduler finds each pod's node"]
    config = given.pod_protections.config
    if config and config.with_claim and config.with_claim.protected_storage_classes:
        notes.append("protectedStorageClasses has no effect: pods with a claim of any class are protected")
    return EvictorArgs(
        selector=given.label_selector,
        namespace_selector=given.namespace_label_selector,
        threshold=threshold.value,
        min_replicas=given.min_replicas,
        min_age_s=None if given.min_pod_age is None else duration(given.min_pod_age, f"{path}.minPodAge") / SECOND,
        mandatory=given.no_eviction_policy == MANDATORY,
        protections=_protections(given, path),
        notes=tuple(notes if given.node_fit or given.node_selector else notes[1:]),
    )


def _protections(given: _Document, path: str) -> frozenset[str]:
    """Returns the protections in force: by `podProtections`, else by the older fields."""
    new = given.pod_protections
    for name, listed, known in (
        ("extraEnabled", new.extra_enabled, EXTRA),
        ("defaultDisabled", new.default_disabled, BY_DEFAULT),
    ):
        for number, each in enumerate(listed):
            where = f"{path}.podProtections.{name}[{number}]"
            check_one_of(each, known, where)
            if each in listed[:number]:
                raise BadConfig(where, f"{each} is listed already; list it once")
    off = {
        LOCAL_STORAGE: given.evict_local_storage_pods,
        DAEMON_SET: given.evict_daemon_set_pods,
        CRITICAL: given.evict_system_critical_pods,
        FAILED_BARE: given.evict_failed_bare_pods,
    }
    extra = {WITH_CLAIM: given.ignore_pvc_pods, WITHOUT_BUDGET: given.ignore_pods_without_pdb}
    if new.extra_enabled or new.default_disabled:
        if any((*off.values(), *extra.values())):
            raise BadConfig(
                f"{path}.podProtections", "given beside the older evict... and ignore... fields; give one kind"
            )
        return frozenset((*(each for each in BY_DEFAULT if each not in new.default_disabled), *new.extra_enabled))
    return frozenset((*(each for each in BY_DEFAULT if not off[each]), *(each for each in EXTRA if extra[each])))


def default_evictor_filter(inputs: Inputs, args: EvictorArgs, now_ns: int) -> Filter:
    """Returns the filter of a cycle."""
    pods = inputs.cluster.pods.by_uid.values() if args.min_replicas > 1 else ()
    of_owner = Counter(owner.uid for pod in pods if (owner := pod.metadata.controller) is not None)

    def reason(pod: PodOnNode) -> str:
        return (
            ""
            if is_forced(pod.pod)
            else next(filter(None, _reasons(inputs.cluster, of_owner, args, pod.pod, now_ns)), "")
        )

    return reason


def _reasons(
    cluster: ObservedCluster, of_owner: Mapping[str, int], args: EvictorArgs, pod: Pod, now_ns: int
) -> Iterator[str]:
    """Yields why a pod stays; empty texts for what does not keep it.

    Args:
        of_owner: uid of a controller -> number of its pods, where `minReplicas` needs it.
    """
    metadata = pod.metadata
    yield "its annotation forbids evictions (noEvictionPolicy)" if args.mandatory and prefers_no_eviction(pod) else ""
    yield leaving_is_senseless(pod)
    yield _protection(cluster, args, pod)
    if args.selector is not None and not meets(args.selector, metadata.labels or {}):
        yield "labelSelector does not select it"
    if args.namespace_selector is not None:
        labels = cluster.namespaces.get(metadata.namespace, {})
        yield "" if meets(args.namespace_selector, labels) else "namespaceLabelSelector does not select its namespace"
    if args.min_replicas > 1 and metadata.controller is not None and len(metadata.owner_references) == 1:
        there = of_owner[metadata.controller.uid]
        yield f"its owner has {there} pods, minReplicas is {args.min_replicas}" if there < args.min_replicas else ""
    if args.min_age_s is not None:
        since_s = elapsed_s(pod.status.start_time, now_ns)
        if since_s is None or since_s < args.min_age_s:
            yield f"it has not run for minPodAge, {args.min_age_s:g} s"


def _protection(cluster: ObservedCluster, args: EvictorArgs, pod: Pod) -> str:
    """Returns the protection that a pod has, with its name; empty for none."""
    found, priority = args.protections, pod.spec.priority
    if CRITICAL in found and priority is not None:
        if priority >= SYSTEM_CRITICAL:
            return f"it is system-critical (DefaultEvictor protects {CRITICAL})"
        if args.threshold is not None and priority >= args.threshold:
            return f"its priority {priority} is not below priorityThreshold {args.threshold}"
    if not pod.metadata.owner_references and (FAILED_BARE in found or pod.status.phase != "Failed"):
        return f"it has no owner that would replace it (DefaultEvictor protects {FAILED_BARE})"
    if LOCAL_STORAGE in found and pod.spec.local_storage:
        return f"it has local storage (DefaultEvictor protects {LOCAL_STORAGE})"
    if DAEMON_SET in found and is_of_daemon_set(pod):
        return f"a DaemonSet owns it (DefaultEvictor protects {DAEMON_SET})"
    if WITH_CLAIM in found and any(volume.persistent_volume_claim for volume in pod.spec.volumes):
        return f"it uses a persistent volume claim (DefaultEvictor protects {WITH_CLAIM})"
    if WITHOUT_BUDGET in found and not cluster.has_budget(pod):
        return f"no disruption budget selects it (DefaultEvictor protects {WITHOUT_BUDGET})"
    return ""
