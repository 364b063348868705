"""Faults of what placements hold beside amounts: volumes, CPUs of Reservations, and running pods that these take over."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from services.gateway import intents_and_outcomes_index, retention_carry_forward
from services.scheduler.cache import reservation_holds
from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.framework.pre_bind_preparation import READY
from services.scheduler.plugins.reservation import pre_allocation
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import lacks_node
from services.scheduler.plugins.volume_binding import find_volumes, plugin
from services.scheduler.state.fold_scheduling import SchedulingFold


def volumes_are_chosen_for_two_claims() -> AbstractContextManager[Any]:
    return patch.object(find_volumes, "_needs", lambda *_: False)


def volumes_of_bound_claims_are_free() -> AbstractContextManager[Any]:
    """The choice of a volume ends with the binding of its claim, which may be observed before the volume."""
    needs = find_volumes._needs
    return patch.object(find_volumes, "_needs", lambda claim, _: needs(claim, ""))


@contextmanager
def claims_have_two_volumes() -> Iterator[None]:
    """A pod that uses the claim of another one goes to any node, and takes a volume of its own for it."""
    free_volumes = find_volumes.free_volumes

    def found(claim: Any, storage: Any, taken: Any) -> Any:
        others = {name: of for name, of in taken.items() if of != claim.metadata.key}
        with patch.object(VolumeCatalog, "chosen_for", lambda *_: ""):
            return [volume for volume in free_volumes(claim, storage, others) if volume.metadata.name not in taken]

    with patch.object(plugin, "free_volumes", found), patch.object(VolumeCatalog, "waits_for_node", lambda *_: False):
        yield


def pods_are_bound_before_their_volumes() -> AbstractContextManager[Any]:
    return patch.object(plugin, "readiness", lambda *_: READY)


def volumes_are_given_to_their_claims_for_ever() -> AbstractContextManager[Any]:
    """A volume that Kubernetes, or a person, frees is written again."""
    return patch.object(intents_and_outcomes_index, "is_written_once", lambda _: False)


def cpus_of_reservations_are_given_twice() -> AbstractContextManager[Any]:
    left_assignment = reservation_holds.left_assignment

    def without_cpus(whole: Any, use: Any) -> Any:
        return left_assignment(whole, use)._replace(allocation=None)

    return patch.object(reservation_holds, "left_assignment", without_cpus)


def pods_beside_those_taken_over_do_not_count() -> AbstractContextManager[Any]:
    def lacks(snapshot: Any, args: Any, pod_class: Any, row: int, _left: Any, pods: int) -> Any:
        return lacks_node(snapshot, args, pod_class, row, [], pods)

    return patch.object(pre_allocation, "lacks_node", lacks)


def pods_are_taken_over_twice() -> AbstractContextManager[Any]:
    return patch.object(pre_allocation, "_is_owner", lambda *_: False)


def pods_of_a_reservation_that_is_gone_are_not_taken_over() -> AbstractContextManager[Any]:
    """The State depends on whether the placement of a Reservation or its deletion is folded first."""
    taken_over = SchedulingFold._taken_over

    def while_it_is_there(self: Any, record: Any, event: Any) -> None:
        if reservation_holds.used_reservation(event.patch["metadata"]["annotations"]) in self.pods:
            taken_over(self, record, event)

    return patch.object(SchedulingFold, "_taken_over", while_it_is_there)


def reservations_are_kept_as_they_are_alone() -> AbstractContextManager[Any]:
    """Retention keeps the newest version of a Reservation: a fold takes its placement for that of an earlier one."""
    return patch.object(retention_carry_forward, "RESERVATIONS", "")


HELD_BY_PLACEMENTS_MUTATIONS = (
    reservations_are_kept_as_they_are_alone,
    volumes_are_chosen_for_two_claims,
    volumes_of_bound_claims_are_free,
    claims_have_two_volumes,
    pods_are_bound_before_their_volumes,
    volumes_are_given_to_their_claims_for_ever,
    cpus_of_reservations_are_given_twice,
    pods_beside_those_taken_over_do_not_count,
    pods_are_taken_over_twice,
    pods_of_a_reservation_that_is_gone_are_not_taken_over,
)
