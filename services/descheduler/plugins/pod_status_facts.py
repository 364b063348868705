"""Facts of a pod's status that plugins choose by: its age, and the states, exit codes and restarts of its containers.

Source: spec/descheduler.md 1.8.
"""

from collections.abc import Collection, Iterator

from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.pod import EPHEMERAL, INIT, ContainerState, Pod


def age_s(pod: Pod, now_ns: int) -> int | None:
    """Returns the whole seconds since a pod was created; None for a time in the future, or one that cannot be read."""
    return elapsed_s(pod.metadata.creation_timestamp, now_ns)


def elapsed_s(instant: str | None, now_ns: int) -> int | None:
    """Returns the whole seconds since an instant; None for one in the future, or one that cannot be read."""
    try:
        elapsed_ns = now_ns - instant_ns(instant) if instant else -1
    except BadTime:
        return None
    return None if elapsed_ns < 0 else elapsed_ns // SECOND


def containers(pod: Pod, *, init: bool, ephemeral: bool = False) -> Iterator[ContainerState]:
    """Yields the states of a pod's ordinary containers, and of its init and ephemeral ones where they count."""
    kinds = {"", *([INIT] if init else ()), *([EPHEMERAL] if ephemeral else ())}
    return (each for each in pod.status.container_states if each.kind in kinds)


def restarts(pod: Pod, *, init: bool) -> int:
    """Returns the sum of the restarts of a pod's containers."""
    return sum(each.restart_count for each in containers(pod, init=init))


def exit_code(pod: Pod, codes: Collection[int], *, init: bool) -> int | None:
    """Returns the first exit code of a pod's containers that is one of some; None without any."""
    found = (each.exit_code for each in containers(pod, init=init))
    return next((code for code in found if code in codes), None)


def has_owner_of(pod: Pod, kinds: Collection[str]) -> bool:
    """Reports whether an owner of a pod is of one of these kinds."""
    return any(owner.kind in kinds for owner in pod.metadata.owner_references)
