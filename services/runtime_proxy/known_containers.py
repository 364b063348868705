"""The pods and containers of the runtime, as hook servers get them. Data, changed by what the runtime answers.

Source: spec/node-agent.md 5.2 (column Store), 5.7.
"""

from typing import Any, NamedTuple

from services.runtime_proxy import cri_messages as cri
from shared.runtime_hooks import messages


class KnownContainer(NamedTuple):
    """A container.

    Attributes:
        sandbox: id of its pod's sandbox.
        subject: a ContainerResourceHookRequest.
    """

    sandbox: str
    subject: Any


class KnownContainers:
    """Pods and containers by their ids.

    Attributes:
        pods: a PodSandboxHookRequest each.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.containers: dict[str, KnownContainer] = {}

    def remove_pod(self, sandbox: str) -> None:
        """Removes a pod with its containers."""
        self.pods.pop(sandbox, None)
        for key in [key for key, each in self.containers.items() if each.sandbox == sandbox]:
            del self.containers[key]

    def restore(self, pods: Any, containers: Any) -> None:
        """Adds the pods and containers that the runtime lists. Its lists have no cgroup parents, resources or variables.

        Args:
            pods: a ListPodSandboxResponse.
            containers: a ListContainersResponse; one of an unknown pod is left out.
        """
        for pod in pods.items:
            self.pods[pod.id] = messages.PodSandboxHookRequest(
                pod_meta=_metadata(pod.metadata),
                runtime_handler=pod.runtime_handler,
                labels=dict(pod.labels),
                annotations=dict(pod.annotations),
            )
        for each in containers.containers:
            if (known := self.pods.get(each.pod_sandbox_id)) is None:
                continue
            subject = container_of(known)
            subject.container_meta.name, subject.container_meta.attempt = each.metadata.name, each.metadata.attempt
            subject.container_meta.id = each.id
            subject.container_annotations.update(each.annotations)
            self.containers[each.id] = KnownContainer(each.pod_sandbox_id, subject)


def pod_of(config: Any, runtime_handler: str = "") -> Any:
    """Returns the pod of a PodSandboxConfig."""
    return messages.PodSandboxHookRequest(
        pod_meta=_metadata(config.metadata),
        runtime_handler=runtime_handler,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        cgroup_parent=config.linux.cgroup_parent,
    )


def container_of(pod: Any) -> Any:
    """Returns a container of a pod, without anything of its own."""
    found = messages.ContainerResourceHookRequest(
        pod_meta=pod.pod_meta,
        pod_annotations=dict(pod.annotations),
        pod_labels=dict(pod.labels),
        pod_cgroup_parent=pod.cgroup_parent,
    )
    if pod.HasField("resources"):
        found.pod_resources.CopyFrom(pod.resources)
    return found


def _metadata(metadata: Any) -> Any:
    return type(messages.PodSandboxHookRequest().pod_meta)(
        name=metadata.name, uid=metadata.uid, namespace=metadata.namespace, attempt=metadata.attempt
    )


LIST_PODS = (f"{cri.RUNTIME_SERVICE}ListPodSandbox", cri.ListPodSandboxRequest, cri.ListPodSandboxResponse)
LIST_CONTAINERS = (f"{cri.RUNTIME_SERVICE}ListContainers", cri.ListContainersRequest, cri.ListContainersResponse)
"""Method, request and response of the lists that `restore` takes."""
