"""The pods and node objects that a node's agent receives, reduced to what its strategies read.

An agent requests them (`PodsRequested` in actions.py) and repeats the request; action ingest answers with all of them,
and again on each change.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from shared.agents.decoding import BadMessage, on_its_topic
from shared.agents.report import Name
from shared.kube.json_text import decode_with
from shared.kube.kept_annotations import MIRROR
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, PodStatus, Volume

DOMAIN = "koordinator.sh"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Label of a node: its type, by which usual values are learned."""
BLOCK_IO = "koordinator.sh/blkioQOS"
"""Annotation of a pod that names block devices or volumes, with their limits."""


class NodePods(msgspec.Struct, frozen=True):
    """The objects of a node in `cluster` at a position.

    Attributes:
        node: must be the node of the topic.
        epoch, seq: of `cluster`; of two messages the one with the higher pair is in force.
        object: the Node: our labels and annotations, capacity, allocatable; None while there is none.
        topology: annotations of its NodeResourceTopology; None while there is none.
        pods: those that are bound to it and have not ended; a static pod under the uid by which its node runs it.
        claims: `namespace/name` of a claim -> the PersistentVolume that it is bound to, for pods with block I/O limits.
    """

    node: Name
    epoch: Annotated[int, Meta(ge=0)]
    seq: Annotated[int, Meta(ge=0)]
    object: Node | None = None
    topology: dict[str, str] | None = None
    pods: tuple[Pod, ...] = ()
    claims: dict[str, str] = {}

    @property
    def position(self) -> tuple[int, int]:
        """The position that decides which of two messages is newer."""
        return self.epoch, self.seq


class BadNodePods(BadMessage):
    """A message with a node's pods that is rejected; the last good one stays in force."""

    what: ClassVar[str] = "pods"


_decoder = msgspec.json.Decoder(NodePods)
_encoder = msgspec.json.Encoder()


def encode(pods: NodePods) -> bytes:
    """Returns the pods of a node as a message: JSON, as the objects are."""
    return _encoder.encode(pods)


def decode(data: bytes, node: str) -> NodePods:
    """Returns a message as the pods of a node.

    Raises:
        BadNodePods: names the node, the field and the reason.
    """
    try:
        pods = decode_with(_decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason, _, path = str(error).partition(" - at `$")
        raise BadNodePods(node, path.rstrip("`").removeprefix("."), reason) from error
    return on_its_topic(pods, BadNodePods, node)


def agent_pod(pod: Pod, uid: str) -> Pod:
    """Returns a pod reduced to the fields that agents read.

    Args:
        uid: under which the node runs it.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return Pod(
        metadata=Metadata(
            name=meta.name,
            namespace=meta.namespace,
            uid=uid,
            labels=_ours(meta.labels),
            annotations=_ours(meta.annotations),
            owner_references=() if meta.controller is None else (meta.controller,),
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
        ),
        spec=PodSpec(
            priority=spec.priority,
            containers=tuple(map(_agent_container, spec.containers)),
            init_containers=tuple(map(_agent_container, spec.init_containers)),
            overhead=spec.overhead,
            resources=spec.resources,
            host_network=spec.host_network,
            volumes=tuple(filter(claim_of(meta.key), spec.volumes)) if BLOCK_IO in (meta.annotations or ()) else (),
        ),
        status=PodStatus(phase=status.phase, qos_class=status.qos_class),
    )


def claim_of(pod: str) -> Callable[[Volume], str]:
    """Returns a function from a volume of the pod (`namespace/name`) to `namespace/name` of its claim.

    Empty without one.
    """
    namespace, _, name = pod.rpartition("/")

    def claim(volume: Volume) -> str:
        if volume.persistent_volume_claim is not None:
            return f"{namespace}/{volume.persistent_volume_claim.claim_name}"
        return f"{namespace}/{name}-{volume.name}" if volume.ephemeral is not None else ""

    return claim


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Returns the claims of a pod that was reduced by `agent_pod`."""
    return tuple(map(claim_of(pod.metadata.key), pod.spec.volumes))


def agent_node(node: Node) -> Node:
    """Returns a node reduced to the fields that agents read."""
    return Node(
        metadata=Metadata(
            name=node.metadata.name,
            labels=_ours(node.metadata.labels, INSTANCE_TYPE),
            annotations=_ours(node.metadata.annotations),
        ),
        status=NodeStatus(capacity=node.status.capacity, allocatable=node.status.allocatable),
    )


def _agent_container(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources, restart_policy=container.restart_policy)


def _ours(texts: dict[str, str] | None, *more: str) -> dict[str, str] | None:
    if not texts:
        return None
    kept = {
        name: text
        for name, text in texts.items()
        if name == MIRROR or name in more or name.partition("/")[0].endswith(DOMAIN)
    }
    return kept or None
