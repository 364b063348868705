"""Faults of the Lease: two systems that write to one cluster at a time."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from services.gateway.cluster_lease import ClusterLease


def the_lease_of_another_system_is_taken() -> AbstractContextManager[Any]:
    """A system takes the Lease although another one renews it."""
    return patch.object(ClusterLease, "_is_others", lambda *_: False)


def effects_go_on_without_the_lease() -> AbstractContextManager[Any]:
    """A system that has not renewed its Lease goes on writing until it reads that another one has it."""
    return patch.object(ClusterLease, "permits_effects", True)


def tries_outlast_the_lease() -> AbstractContextManager[Any]:
    """No effect begins once the Lease has expired, but those that have begun are repeated."""
    return patch.object(ClusterLease, "hold_writes", lambda *_: None)


LEASE_MUTATIONS = (
    the_lease_of_another_system_is_taken,
    effects_go_on_without_the_lease,
    tries_outlast_the_lease,
)
