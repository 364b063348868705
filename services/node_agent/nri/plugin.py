"""Answers to the requests of a container runtime: each a function of the request and of what is in memory."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.nri import messages
from services.node_agent.runtime_hooks.container_hooks import (
    Adjustment,
    BindMount,
    ContainerContext,
    Hook,
    HookResults,
    run_hooks,
)
from shared.errors import KoordError
from shared.kube.system_annotations import with_allocations

log = logging.getLogger(__name__)

Allocations = Callable[[str], Mapping[str, str] | None]
"""From a pod's uid to its allocations as the scheduler decided them; None for a pod that is not known yet."""


class UnknownMethod(KoordError):
    """A method that the plugin does not serve."""

    def __init__(self, service: str, method: str) -> None:
        super().__init__(f"{service}/{method} is not served by this plugin")


class BadRequest(KoordError):
    """A request that cannot be decoded."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"the request of {method} cannot be decoded: {reason}")


class NriPlugin:
    """The agent as the runtime sees it.

    Attributes:
        runtime: name and version of the runtime that configured it last.
        applied, failed: number of containers by hook that changed them, or could not.
    """

    def __init__(self, hooks: Mapping[str, Hook], allocations: Allocations, *, stop_at_failure: bool) -> None:
        self.runtime = ""
        self.applied = dict.fromkeys(hooks, 0)
        self.failed = 0
        self._hooks, self._allocations, self._stop_at_failure = hooks, allocations, stop_at_failure
        self._methods: Mapping[str, tuple[Any, Callable[[Any], Any]]] = {
            "Configure": (messages.ConfigureRequest, self._configure),
            "Synchronize": (messages.SynchronizeRequest, self._synchronize),
            "CreateContainer": (messages.CreateContainerRequest, self._create_container),
        }

    def answer(self, service: str, method: str, payload: bytes) -> bytes:
        """Returns the response to a request.

        Raises:
            UnknownMethod, BadRequest: nothing of ours.
            HookFailed: the policy is `Fail`: the runtime does not create the container.
        """
        if service != messages.PLUGIN or method not in self._methods:
            raise UnknownMethod(service, method)
        request, answer = self._methods[method]
        try:
            decoded = request.FromString(payload)
        except DecodeError as error:
            raise BadRequest(method, str(error)) from error
        found: bytes = answer(decoded).SerializeToString()
        return found

    def _configure(self, request: Any) -> Any:
        self.runtime = f"{request.runtime_name} {request.runtime_version}".strip()
        return messages.ConfigureResponse(events=messages.CREATE_CONTAINER_EVENT)

    def _synchronize(self, request: Any) -> Any:
        return messages.SynchronizeResponse(more=request.more)

    def _create_container(self, request: Any) -> Any:
        results = run_hooks(self._hooks, self._context(request), stop_at_failure=self._stop_at_failure)
        self._count(results)
        if results.failures and self._stop_at_failure:
            raise results.failures[0]
        for mount in results.adjustment.mounts:
            if mount.scratch:
                _make_scratch(mount)
        return messages.CreateContainerResponse(adjust=_message(results.adjustment))

    def _context(self, request: Any) -> ContainerContext:
        """Returns the container of a request.

        Its pod's allocations are the scheduler's where the agent has received the pod, else those that its annotations
        claim: a container may start before that message comes.
        """
        pod, annotations = request.pod, dict(request.pod.annotations)
        known = self._allocations(pod.uid)
        if known is not None:
            annotations = with_allocations(annotations, known) or {}
        return ContainerContext(
            f"{pod.namespace}/{pod.name}", pod.uid, dict(pod.labels), annotations, request.container.name
        )

    def gauges(self) -> Iterator[Gauge]:
        """Yields the numbers of containers."""
        for name, count in self.applied.items():
            yield Gauge("koord_node_agent_hooked_containers", {"hook": name}, count)
        yield Gauge("koord_node_agent_hook_failures", {}, self.failed)

    def _count(self, results: HookResults) -> None:
        for name in results.applied:
            self.applied[name] += 1
        self.failed += bool(results.failures)
        for failure in results.failures:
            log.warning("a hook is not applied to a container", extra={"why": str(failure)})


def _message(adjustment: Adjustment) -> Any:
    return {
        "env": [{"key": name, "value": text} for name, text in adjustment.env.items()],
        "mounts": [
            {"destination": mount.destination, "type": "bind", "source": mount.source, "options": ["rbind"]}
            for mount in adjustment.mounts
        ],
        "linux": {
            "devices": [
                {
                    "path": device.path,
                    "type": "c",
                    "major": device.major,
                    "minor": device.minor,
                    "file_mode": {"value": device.mode},
                }
                for device in adjustment.devices
            ]
        },
    }


def _make_scratch(mount: BindMount) -> None:
    """Makes a container's folder anew, writable by all; what a former container of its name left there is gone."""
    folder = Path(mount.source)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o777)  # noqa: S103,PTH101  programs of any user write there
    except OSError as error:
        log.warning("a folder of a container cannot be made", extra={"folder": mount.source, "error": str(error)})
