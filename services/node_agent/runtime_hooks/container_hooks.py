"""Hooks of the stage PreCreateContainer: the changes to a container before it starts. They are pure functions, and do not
depend on how the changes reach a runtime.

Source: spec/node-agent.md 4.1, 4.2.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from services.node_agent.runtime_hooks.hook_values import NO_VALUES, HookValues
from shared.errors import KoordError
from shared.kube.meta import Metadata
from shared.kube.pod import Pod

_NO_POD = Pod(metadata=Metadata())


class ContainerContext(NamedTuple):
    """A container that is about to be created.

    Attributes:
        pod: `namespace/name`.
        annotations: the pod's; the allocations among them are those that the scheduler decided.
        container: its name; empty for the pod itself.
        subject: the pod, as the agent received it or else as the runtime knows it: without containers.
        quota_us: the quota that the kubelet gives the container; 0: none.
    """

    pod: str
    pod_uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    container: str
    subject: Pod = _NO_POD
    quota_us: int = 0


class BindMount(NamedTuple):
    """A file or folder of the host that the container sees.

    Attributes:
        scratch: an empty folder for this container alone; the carrier makes it anew, writable by all.
    """

    source: str
    destination: str
    scratch: bool = False


class CharDevice(NamedTuple):
    """A character device."""

    path: str
    major: int
    minor: int
    mode: int = 0o666


class Adjustment(NamedTuple):
    """Changes of one container: variables by name, mounts, devices, values of its cgroup, its RDT class.

    Attributes:
        rdt_class: name of a resctrl group; empty: none.
    """

    env: Mapping[str, str] = {}
    mounts: tuple[BindMount, ...] = ()
    devices: tuple[CharDevice, ...] = ()
    values: HookValues = NO_VALUES
    rdt_class: str = ""


NO_ADJUSTMENT = Adjustment()


class HookFailed(KoordError):
    """A hook cannot be applied to a container, or to a pod.

    Attributes:
        hook, reason: its name, and why.
    """

    def __init__(self, hook: str, context: ContainerContext, reason: str) -> None:
        subject = f"container {context.container} of pod" if context.container else "pod"
        self.hook, self.reason = hook, reason
        super().__init__(f"hook {hook} for {subject} {context.pod}: {reason}")


Hook = Callable[[ContainerContext], Adjustment]


class HookResults(NamedTuple):
    """Results of all hooks for one container.

    Attributes:
        applied: names of the hooks that change something.
        failures: of hooks; the container starts without what they would have added.
    """

    adjustment: Adjustment = NO_ADJUSTMENT
    applied: tuple[str, ...] = ()
    failures: tuple[HookFailed, ...] = ()


def run_hooks(hooks: Mapping[str, Hook], context: ContainerContext, *, stop_at_failure: bool = False) -> HookResults:
    """Runs hooks in the order of their names; of two values for a variable the later hook's is in force.

    Args:
        hooks: by name.
        stop_at_failure: the policy `Fail`: hooks after the first one that fails are not run.
    """
    adjustment, applied, failures = Adjustment(), [], []
    for name in sorted(hooks):
        try:
            found = hooks[name](context)
        except HookFailed as failure:
            failures.append(failure)
            if stop_at_failure:
                break
            continue
        if found != NO_ADJUSTMENT:
            applied.append(name)
            adjustment = Adjustment(
                {**adjustment.env, **found.env},
                (*adjustment.mounts, *found.mounts),
                (*adjustment.devices, *found.devices),
                adjustment.values.overlaid_by(found.values),
                found.rdt_class or adjustment.rdt_class,
            )
    return HookResults(adjustment, tuple(applied), tuple(failures))
