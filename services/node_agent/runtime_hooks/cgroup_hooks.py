"""The hooks that set values of cgroups, each a pure function of pod, container and the node's rules.

The reconciler and the container runtime's plugin apply the same ones.

Source: spec/node-agent.md 4.1-4.6, 4.10.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from services.node_agent.cgroup.cpu_conversions import UNLIMITED
from services.node_agent.runtime_hooks import batch_resource, cpu_normalization, cpuset, oom_score_from_annotations
from services.node_agent.runtime_hooks.container_hooks import Adjustment, ContainerContext, Hook, HookFailed
from services.node_agent.runtime_hooks.group_identity import BadCpuQos
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_values import NO_VALUES, HookValues
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.pod import Pod

NO_LIMIT = -1


class BadValue(Exception):
    """A hook cannot compute a value; the text is the reason, without pod and hook."""


class HookedContainer(NamedTuple):
    """A container of a pod.

    Attributes:
        quota_us: the quota that the kubelet gives it, in a request to the runtime; 0: not given, the limits of the pod
            as it was received count.
    """

    name: str
    quota_us: int = 0


class CgroupHook(NamedTuple):
    """One hook.

    Attributes:
        of_pod, of_container: return the values; a BadValue where an input is invalid. None: it has none for pods.
        at_update: it applies to updates of a running container, too.
    """

    of_pod: Callable[[Pod, HookRules], HookValues] | None
    of_container: Callable[[Pod, HookedContainer, HookRules], HookValues]
    at_update: bool = True


class Failure(NamedTuple):
    """A hook that could not compute its values."""

    hook: str
    reason: str


class Computed(NamedTuple):
    """The values of one cgroup, by all hooks in the order of their names.

    Attributes:
        hooks: names of those that set a value.
    """

    values: HookValues = NO_VALUES
    hooks: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()


def without_identity(computed: Computed) -> Computed:
    """Returns the same without `cpu.bvt_warp_ns`, for a node or a runtime that has no identities in force."""
    hooks = tuple(name for name in computed.hooks if name != "GroupIdentity")
    return computed._replace(values=computed.values._replace(bvt=None), hooks=hooks)


def pod_values(pod: Pod, rules: HookRules) -> Computed:
    """Returns the values of a pod's cgroup."""
    return _computed(rules, lambda hook: hook.of_pod(pod, rules) if hook.of_pod is not None else NO_VALUES)


def container_values(pod: Pod, container: HookedContainer, rules: HookRules, *, update: bool = False) -> Computed:
    """Returns the values of a container's cgroup and processes.

    Args:
        update: of a running container, by its runtime.
    """

    def of(hook: CgroupHook) -> HookValues:
        return NO_VALUES if update and not hook.at_update else hook.of_container(pod, container, rules)

    return _computed(rules, of)


def _computed(rules: HookRules, of: Callable[[CgroupHook], HookValues]) -> Computed:
    values, hooks, failures = NO_VALUES, [], []
    for name, hook in CGROUP_HOOKS.items():
        if name not in rules.gates:
            continue
        try:
            found = of(hook)
        except BadValue as error:
            failures.append(Failure(name, str(error)))
            continue
        if found != NO_VALUES:
            hooks.append(name)
            values = values.overlaid_by(found)
    return Computed(values, tuple(hooks), tuple(failures))


def _batch_of_pod(pod: Pod, rules: HookRules) -> HookValues:
    if not batch_resource.applies(pod) or (requests := batch_resource.batch_requests(pod)) is None:
        return NO_VALUES
    return _batch_values(batch_resource.pod_values(requests, rules.batch))


def _batch_of_container(pod: Pod, container: HookedContainer, rules: HookRules) -> HookValues:
    if not batch_resource.applies(pod) or (requests := batch_resource.batch_requests(pod)) is None:
        return NO_VALUES
    batch = requests.get(container.name)
    return NO_VALUES if batch is None else _batch_values(batch_resource.container_values(batch, rules.batch))


def _batch_values(values: batch_resource.Values) -> HookValues:
    if max(values.quota_us, values.memory_limit) > UNLIMITED:
        raise BadValue(
            f"a quota of {values.quota_us} us or a limit of {values.memory_limit} bytes is beyond any cgroup"
        )
    return HookValues(values.shares, values.quota_us, values.memory_limit or NO_LIMIT)


def _normalized_pod(pod: Pod, rules: HookRules) -> HookValues:
    if not rules.normalization.enabled or not cpu_normalization.applies(pod):
        return NO_VALUES
    return HookValues(quota_us=cpu_normalization.pod_quota(pod, rules.normalization))


def _normalized_container(pod: Pod, container: HookedContainer, rules: HookRules) -> HookValues:
    if not rules.normalization.enabled or not cpu_normalization.applies(pod):
        return NO_VALUES
    if container.quota_us > 0:
        return HookValues(quota_us=cpu_normalization.scaled(container.quota_us, rules.normalization.ratio))
    for each in pod.spec.containers:
        if each.name == container.name:
            return HookValues(quota_us=cpu_normalization.container_quota(each, rules.normalization))
    return NO_VALUES


def _cpus_of_pod(pod: Pod, rules: HookRules) -> HookValues:
    return HookValues(quota_us=NO_LIMIT) if _own_cpus(pod, rules) else NO_VALUES


def _cpus_of_container(pod: Pod, _: HookedContainer, rules: HookRules) -> HookValues:
    quota_us = NO_LIMIT if _own_cpus(pod, rules) else None
    cpus = cpuset.container_cpus(pod, rules.cpus)
    if not cpus:
        return HookValues(quota_us=quota_us)
    return HookValues(quota_us=quota_us, cpus=_checked(cpus, rules))


def _own_cpus(pod: Pod, rules: HookRules) -> bool:
    """Reports whether the scheduler gave the pod CPUs of its own, which replace its quota unless it is to be kept.

    Raises:
        BadValue: the node does not have them: the quota stays.
    """
    # A pod without containers is known from its runtime alone: its owner may have written the annotation, which must
    # not lift a limit.
    if rules.keep_quota or not pod.spec.containers or not cpuset.unlimited(pod):
        return False
    _checked(cpuset.container_cpus(pod, rules.cpus) or "", rules)
    return True


def _checked(cpus: str, rules: HookRules) -> str:
    """Returns a set of CPUs.

    Raises:
        BadValue: it is no such set, or the node does not have all of them: a runtime would not create the container.
    """
    try:
        found = parse_cpus(cpus)
    except BadCpuList as error:
        raise BadValue(f"CPUs {cpus!r}: {error}") from error
    if not found or (rules.online and not found <= rules.online):
        raise BadValue(f"CPUs {cpus!r}: the node does not have all of them")
    return cpus


def _identity_of_pod(pod: Pod, rules: HookRules) -> HookValues:
    try:
        return HookValues(bvt=rules.identities.of_pod(pod))
    except BadCpuQos as error:
        if not rules.identities.enabled:
            return NO_VALUES
        raise BadValue(str(error)) from error


def _score_of_container(pod: Pod, container: HookedContainer, _: HookRules) -> HookValues:
    return HookValues(oom_score=oom_score_from_annotations.score(pod.metadata.annotations, container.name))


CGROUP_HOOKS: Mapping[str, CgroupHook] = {
    "BatchResource": CgroupHook(_batch_of_pod, _batch_of_container),
    "CPUNormalization": CgroupHook(_normalized_pod, _normalized_container),
    "CPUSetAllocator": CgroupHook(_cpus_of_pod, _cpus_of_container),
    "GroupIdentity": CgroupHook(_identity_of_pod, lambda pod, _, rules: _identity_of_pod(pod, rules), at_update=False),
    "OOMScoreAdj": CgroupHook(None, _score_of_container, at_update=False),
}
"""The hooks by the name of their gate, in the order in which they run."""


def as_hook(name: str, rules: Callable[[], HookRules], carries_identity: Callable[[], bool]) -> Hook:
    """Returns one of them as a hook of containers that are about to be created.

    Args:
        name: of its gate, which is on.
        carries_identity: reports whether the runtime can set `cpu.bvt_warp_ns`.
    """

    def hook(context: ContainerContext) -> Adjustment:
        in_force = rules()
        container = HookedContainer(context.container, context.quota_us)
        try:
            values = CGROUP_HOOKS[name].of_container(context.subject, container, in_force)
        except BadValue as error:
            raise HookFailed(name, context, str(error)) from error
        if values.bvt is not None and not (in_force.identities.enabled and carries_identity()):
            values = values._replace(bvt=None)
        return Adjustment(values=values)

    return hook
