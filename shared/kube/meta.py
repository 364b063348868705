"""Metadata of Kubernetes objects in events, in the API's own JSON names."""

import msgspec


class KubeStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of the kept objects: JSON names as in Kubernetes, unknown fields dropped, absent fields at their defaults."""


class OwnerReference(KubeStruct, frozen=True):
    """One `metadata.ownerReferences` entry."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(KubeStruct, frozen=True):
    """The kept part of `metadata`. Timestamps are RFC 3339 texts, as the API gives them."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """Returns the reference to the controller; None for an object that has none."""
        return next((each for each in self.owner_references if each.controller), None)
