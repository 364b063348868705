"""The part of a pod's status that events keep of its containers: states, and resources that differ from the requests.

The full statuses change with every probe and hold identifiers that no decision reads.
"""

from msgspec.structs import replace

from shared.kube.pod import (
    EPHEMERAL,
    INIT,
    Container,
    ContainerState,
    ContainerStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)


def kept_status(spec: PodSpec, status: PodStatus) -> PodStatus:
    """Returns the status with only those container statuses whose resources differ from the spec's requests, and with the
    states of its containers.
    """
    by_kind = {
        "": status.container_statuses,
        INIT: status.init_container_statuses,
        EPHEMERAL: status.ephemeral_container_statuses,
    }
    if not any(by_kind.values()):
        return status
    return replace(
        status,
        container_statuses=_resizing(spec.containers, status.container_statuses),
        init_container_statuses=_resizing(spec.init_containers, status.init_container_statuses),
        ephemeral_container_statuses=(),
        container_states=tuple(
            state for kind, statuses in by_kind.items() for each in statuses if (state := _state(kind, each))
        ),
    )


def _state(kind: str, status: ContainerStatus) -> ContainerState | None:
    """Returns the state of a container in its short form; None for one that runs and never was restarted."""
    waiting, terminated = (status.state.waiting, status.state.terminated) if status.state else (None, None)
    if not (waiting or terminated or status.restart_count):
        return None
    return ContainerState(
        name=status.name,
        kind=kind,
        restart_count=status.restart_count,
        waiting=waiting.reason if waiting else "",
        terminated=terminated.reason if terminated else "",
        exit_code=terminated.exit_code if terminated else None,
    )


def _resizing(containers: tuple[Container, ...], statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    requested = {c.name: (c.resources.requests if c.resources else None) or {} for c in containers}
    return tuple(
        ContainerStatus(
            name=status.name,
            resources=ResourceRequirements(requests=status.resources.requests),
            allocated_resources=status.allocated_resources,
        )
        for status in statuses
        if status.resources is not None
        and any(
            actual is not None and actual != requested.get(status.name)
            for actual in (status.resources.requests, status.allocated_resources)
        )
    )
