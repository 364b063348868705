"""Matching of pods against the owners of a Reservation.

Source: spec/scheduler-workloads.md 1.5; upstream pkg/util/reservation/matcher.go.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shared.domain.node_selection import selects
from shared.domain.reservation import ControllerOwner, ObjectOwner, Owner
from shared.kube.meta import OwnerReference


class Identity(NamedTuple):
    """The parts of a single pod that an owner may name, beyond its labels.

    Attributes:
        name, uid: of the pod; empty where only its controllers are named.
    """

    name: str = ""
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


NOBODY = Identity()


def matches_one(owners: Iterable[Owner], namespace: str, labels: Mapping[str, str], identity: Identity | None) -> bool:
    """Reports whether a pod matches one of the owners; without an identity, only owners by labels can match."""
    return any(_matches(owner, namespace, labels, identity or NOBODY) for owner in owners)


def named_identity(owners: Iterable[Owner], namespace: str, identity: Identity) -> Identity | None:
    """Returns the part of a pod's identity that some of the owners name; None where they name none of it."""
    found: Identity | None = None
    for owner in owners:
        if owner.object is not None and _is_object(owner.object, namespace, identity):
            return identity
        if (
            owner.object is None
            and owner.controller is not None
            and _is_controlled(owner.controller, namespace, identity)
        ):
            found = Identity(owner_references=identity.owner_references)
    return found


def _matches(owner: Owner, namespace: str, labels: Mapping[str, str], identity: Identity) -> bool:
    return (
        (owner.object is None or _is_object(owner.object, namespace, identity))
        and (owner.controller is None or _is_controlled(owner.controller, namespace, identity))
        and (owner.label_selector is None or selects(owner.label_selector, labels))
    )


def _is_object(named: ObjectOwner, namespace: str, identity: Identity) -> bool:
    # Observed pods have no apiVersion, so an owner that names one matches none, as in upstream.
    return (
        not named.api_version
        and named.uid in ("", identity.uid)
        and named.name in ("", identity.name)
        and named.namespace in ("", namespace)
    )


def _is_controlled(named: ControllerOwner, namespace: str, identity: Identity) -> bool:
    return named.namespace in ("", namespace) and any(
        (named.controller is None or named.controller == bool(reference.controller))
        and named.uid in ("", reference.uid)
        and named.name in ("", reference.name)
        and named.kind in ("", reference.kind)
        and named.api_version in ("", reference.api_version)
        for reference in identity.owner_references
    )
