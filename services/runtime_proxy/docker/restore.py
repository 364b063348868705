"""The state of Docker when the proxy starts: its cgroup driver, and the pods and containers that there are.

Source: spec/node-agent.md 5.7.
"""

import asyncio
import logging
import re
from typing import NamedTuple

import msgspec

from services.runtime_proxy.docker.container_config import (
    SANDBOX_ID,
    ContainerConfig,
    HostConfig,
    container_subject,
    parse_name,
    pod_subject,
)
from services.runtime_proxy.docker.docker_api import DockerApi, NoDocker
from services.runtime_proxy.known_containers import KnownContainer, KnownContainers

log = logging.getLogger(__name__)

_ID = re.compile(r"[0-9a-f]{64}").fullmatch
AT_ONCE = 16
"""Containers that are inspected at a time."""


class Restored(NamedTuple):
    """The state of Docker.

    Attributes:
        driver: of cgroups, `cgroupfs` or `systemd`.
    """

    version: str
    driver: str
    known: KnownContainers


class Info(msgspec.Struct, frozen=True, rename="pascal"):
    """The fields of GET /info that are read."""

    server_version: str
    cgroup_driver: str


class Listed(msgspec.Struct, frozen=True, rename="pascal"):
    """The fields of an entry of GET /containers/json that are read."""

    id: str


class Inspected(msgspec.Struct, frozen=True, rename="pascal"):
    """The fields of an inspected container that are read."""

    id: str
    name: str
    config: ContainerConfig
    host_config: HostConfig

    @property
    def created(self) -> ContainerConfig:
        """The container as a request creates it."""
        return msgspec.structs.replace(self.config, host_config=self.host_config)


async def restored(docker: DockerApi) -> Restored:
    """Returns the state of Docker.

    Raises:
        NoDocker: it does not answer. A container that cannot be inspected is left out.
    """
    info = await docker.get("/info", Info)
    listed = await docker.get("/containers/json?all=1", list[Listed])
    if info is None or listed is None:
        raise NoDocker(docker.endpoint, "it has neither /info nor /containers/json: it is not Docker's API")
    turns = asyncio.Semaphore(AT_ONCE)

    async def inspect(each: Listed) -> Inspected | None:
        async with turns:
            try:
                return await docker.get(f"/containers/{each.id}/json", Inspected)
            except NoDocker as error:
                log.warning("no hooks are called for a container", extra={"container": each.id, "why": str(error)})
                return None

    found = await asyncio.gather(*(inspect(each) for each in listed))
    known = known_of([each for each in found if each is not None], info.cgroup_driver)
    return Restored(f"Docker {info.server_version}", info.cgroup_driver, known)


async def add_pod(docker: DockerApi, known: KnownContainers, sandbox: str, driver: str) -> None:
    """Adds a pod that is not known, if Docker has its sandbox: one of before the start that could not be inspected, or
    one that was not created through the proxy.
    """
    if sandbox in known.pods or not _ID(sandbox):
        return
    try:
        found = await docker.get(f"/containers/{sandbox}/json", Inspected)
    except NoDocker as error:
        log.warning("a sandbox cannot be inspected", extra={"sandbox": sandbox, "why": str(error)})
        return
    if found is not None:
        known.pods.update(known_of([found], driver).pods)


def known_of(inspected: list[Inspected], driver: str) -> KnownContainers:
    """Returns the pods and containers among those that Docker has; those of no kubelet are left out."""
    known = KnownContainers()
    containers = []
    for each in inspected:
        if (name := parse_name(each.name)) is None:
            continue
        if each.config.is_sandbox:
            known.pods[each.id] = pod_subject(name, each.created, driver)
        else:
            containers.append((name, each))
    for name, each in containers:
        sandbox = each.config.label(SANDBOX_ID)
        if (pod := known.pods.get(sandbox)) is not None:
            subject = container_subject(pod, name, each.created, driver)
            subject.container_meta.id = each.id
            known.containers[each.id] = KnownContainer(sandbox, subject)
    return known
