"""Messages of kube-scheduler's extender protocol. Source: k8s.io/kube-scheduler/extender/v1."""

from typing import Any

import msgspec

from shared.kube.pod import Pod

MAX_EXTENDER_SCORE = 10


class UpstreamStruct(msgspec.Struct, frozen=True, kw_only=True, rename="pascal", omit_defaults=True):
    """Base: the protocol's JSON has Go's field names."""


class NodeItems(msgspec.Struct, frozen=True):
    """A NodeList; its items stay encoded."""

    items: tuple[msgspec.Raw, ...] = ()


class ExtenderArgs(UpstreamStruct, frozen=True):
    """A pod and the nodes to filter or to score: by name from a caller that sets `nodeCacheCapable`, else as
    objects.
    """

    pod: Pod
    nodes: NodeItems | None = None
    node_names: tuple[str, ...] | None = None


class ExtenderFilterResult(UpstreamStruct, frozen=True, omit_defaults=False):
    """The nodes that passed, in the form of the request; the others with a reason.

    Attributes:
        failed_and_unresolvable_nodes: nodes where no preemption would help.
    """

    nodes: dict[str, Any] | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(UpstreamStruct, frozen=True, omit_defaults=False):
    """The score of a node, 0..10."""

    host: str
    score: int


class ExtenderBindingArgs(UpstreamStruct, frozen=True):
    """A pod and the node to bind it to."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class ExtenderBindingResult(UpstreamStruct, frozen=True, omit_defaults=False):
    """The reason why the pod is not bound; empty when it is."""

    error: str = ""


class MetaPod(UpstreamStruct, frozen=True):
    """A victim by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(UpstreamStruct, frozen=True, omit_defaults=False):
    """The victims on one node."""

    pods: tuple[MetaPod, ...] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(UpstreamStruct, frozen=True):
    """The victims on one node, as whole pods."""

    pods: tuple[Pod, ...] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def meta(self) -> MetaVictims:
        """Returns the same by uid."""
        uids = tuple(MetaPod(uid=pod.metadata.uid) for pod in self.pods or ())
        return MetaVictims(pods=uids, num_pdb_violations=self.num_pdb_violations)


class ExtenderPreemptionArgs(UpstreamStruct, frozen=True):
    """A pod, and candidate nodes with their victims."""

    pod: Pod
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def candidates(self) -> dict[str, MetaVictims]:
        """Returns node -> victims by uid, from either form of the request."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        return {node: victims.meta() for node, victims in (self.node_name_to_victims or {}).items()}


class ExtenderPreemptionResult(UpstreamStruct, frozen=True, omit_defaults=False):
    """The nodes that help, with their victims."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}
