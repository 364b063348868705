"""Intents and outcomes in the gateway's State: which intents are due, and which desired states are in force."""

from functools import cache
from operator import itemgetter

from services.gateway.desired_state_outcome_codes import APPLIED, ENDED, GIVEN_UP, EarlyOutcome, Suppressed
from services.gateway.effects.intent_types import (
    POD_SCHEDULED,
    DesiredState,
    FieldGroup,
    Intent,
    ObjectRef,
    OneShot,
    field_group,
    object_ref,
)
from services.gateway.intents_by_context_in_snapshot import by_cause, by_context
from services.gateway.kube_api.resources import PODS
from services.gateway.snapshot_schema import StoredIntents
from shared.domain.fields_written_once import is_written_once
from shared.domain.reservation import PRE_ALLOCATION_FIELDS
from shared.events import Cause
from shared.events.cluster import IntentRefused
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.runtime.sharding import declared_name


class IntentIndex:
    """Intents by cause, object and field group.

    Contexts have no order among each other: an outcome (in `cluster`) may be read before the intent (in `scheduling`)
    that it answers, so `early_outcomes` keeps such outcomes until their intents arrive.

    The shards of one service may desire the same fields of an object: a node changed shards with their number. Of these
    desired states the one that was recorded last counts. It is chosen among the newest of each shard, so that the
    choice does not depend on the order in which the shards are read.

    Attributes:
        one_shots, desired: intents without an outcome, oldest first within a context; of desired states only the
            newest.
        recorded_ns: instants at which the one-shot intents were recorded; an old one has no effect any more.
        superseded: desired states without an outcome that a newer one, or the placement of the pod, has replaced.
        newest: the newest desired state of each field group, from when it is read until it has ended.
        desired_ns: of those of sharded contexts, the instants at which they were recorded.
        applied: the newest desired states that were written; they are written again after drift. Those that end once
            they are applied are not among them.
        given_up: the newest desired states that the API server did not take within the deadline, or for which a
            permission is missing; they stay due.
        suppressed: the newest desired states that shadow mode did not write; due again after a start without shadow
            mode.
        refused: the outcomes of intents that their contexts may not carry, until they are recorded.
        early_outcomes: outcomes read before their intents.
        field_groups: derived from `newest`: its field groups by object.
        outranked: derived from `newest` and `desired_ns`: newest desired states of a shard beside a later one of
            another shard, which counts in their place. They are never written.
        queues: derived from `one_shots` and `desired`: intents by object; those of one context run in this order.
    """

    def __init__(self) -> None:
        self.one_shots: dict[Cause, OneShot] = {}
        self.recorded_ns: dict[Cause, int] = {}
        self.desired: dict[Cause, DesiredState] = {}
        self.superseded: dict[Cause, DesiredState] = {}
        self.newest: dict[FieldGroup, Cause] = {}
        self.desired_ns: dict[Cause, int] = {}
        self.applied: dict[Cause, FieldsDesired | ObjectDesired] = {}
        self.given_up: dict[Cause, DesiredState] = {}
        self.suppressed: dict[Cause, Suppressed] = {}
        self.refused: dict[Cause, IntentRefused] = {}
        self.early_outcomes: dict[Cause, EarlyOutcome] = {}
        self.field_groups: dict[ObjectRef, dict[FieldGroup, None]] = {}
        self.outranked: dict[Cause, None] = {}
        self.queues: dict[ObjectRef, dict[Cause, None]] = {}

    def add_one_shot(self, cause: Cause, event: OneShot, at_ns: int) -> None:
        """Adds an intent with a one-shot effect that was recorded at an instant, unless its outcome was read before."""
        # A binding sets the condition PodScheduled itself; written after it, PodScheduled=False would be wrong. And the
        # Reservation that it takes place in counts, not one that took the pod over on an earlier node.
        if isinstance(event, PodPlaced):
            for fields in POD_SCHEDULED, PRE_ALLOCATION_FIELDS:
                self._supersede(FieldGroup(PODS.name, event.pod, cause.context, fields))
        if self.early_outcomes.pop(cause, None) is None:
            self.one_shots[cause] = event
            self.recorded_ns[cause] = at_ns
            self._enqueue(cause, event)

    def add_desired(self, cause: Cause, event: DesiredState, at_ns: int) -> None:
        """Adds a desired state, recorded at an instant, as the newest of its field group; supersedes the one before."""
        group = field_group(cause.context, event)
        self._supersede(group)
        if _family(cause.context):
            self.desired_ns[cause] = at_ns
        self._set_newest(group, cause)
        early = self.early_outcomes.pop(cause, None)
        if early is None:
            self.desired[cause] = event
            self._enqueue(cause, event)
        else:
            self._set_result(cause, event, ENDED if early.applied and _ends_once_applied(event) else early.result)

    def add_refused(self, cause: Cause, outcome: IntentRefused) -> None:
        """Adds an intent that its context may not carry, unless its outcome was read before. It is never due."""
        if self.early_outcomes.pop(cause, None) is None:
            self.refused[cause] = outcome

    def _supersede(self, group: FieldGroup) -> None:
        older = self.newest.get(group)
        if older is None:
            return
        self.applied.pop(older, None)
        self.given_up.pop(older, None)
        self.suppressed.pop(older, None)
        without_outcome = self.desired.pop(older, None)
        if without_outcome is not None:
            self.superseded[older] = without_outcome
            self._dequeue(older, without_outcome)
        self._remove_newest(group)

    def add_outcome(self, cause: Cause, result: int, position: int) -> None:
        """Files the outcome of an intent.

        Args:
            result: of a desired state: ENDED, APPLIED, GIVEN_UP or the seq of a DesiredStateSuppressed.
            position: last seq that has been read of the intent's context.
        """
        if cause.seq > position:
            before = self.early_outcomes.get(cause, EarlyOutcome(result, applied=False))
            self.early_outcomes[cause] = EarlyOutcome(
                ENDED if before.result == ENDED else result, before.applied or result == APPLIED
            )
            return
        self.superseded.pop(cause, None)
        self.refused.pop(cause, None)
        self.recorded_ns.pop(cause, None)
        intent = self.one_shots.pop(cause, None) or self.desired.pop(cause, None)
        if intent is not None:
            self._dequeue(cause, intent)
        suppressed = self.suppressed.pop(cause, None)
        desired = (
            intent
            or self.applied.pop(cause, None)
            or self.given_up.pop(cause, None)
            or (suppressed.desired if suppressed else None)
        )
        if isinstance(desired, DesiredState):
            self._set_result(cause, desired, result)

    def in_force(self, cause: Cause) -> DesiredState:
        """Returns a desired state that was applied, given up or suppressed."""
        return self.applied.get(cause) or self.given_up.get(cause) or self.suppressed[cause].desired

    def newest_of(self, ref: ObjectRef) -> list[Cause]:
        """Returns the newest desired states of an object that count, one of each field group."""
        causes = (self.newest[group] for group in self.field_groups.get(ref, ()))
        return [cause for cause in causes if cause not in self.outranked]

    def waits_for_object(self, cause: Cause, desired: DesiredState) -> bool:
        """Reports whether desired fields wait for the object itself, which their context desired before them.

        While that has no outcome, or was given up, the object may not exist, and its fields would be rejected for good.
        """
        if not isinstance(desired, FieldsDesired):
            return False
        made_by = self.newest.get(FieldGroup(desired.resource, desired.name, cause.context, ""))
        return made_by is not None and made_by < cause and (made_by in self.desired or made_by in self.given_up)

    def forget_early_outcomes(self, context: str, seq: int) -> None:
        """Forgets outcomes of intents of a context up to a seq, which will not be read any more."""
        for cause in [cause for cause in self.early_outcomes if cause.context == context and cause.seq <= seq]:
            del self.early_outcomes[cause]

    def _set_result(self, cause: Cause, desired: DesiredState, result: int) -> None:
        """Files a newest desired state by its result: applied, given up, suppressed, or not at all if it has ended."""
        if result == GIVEN_UP:
            self.given_up[cause] = desired
        elif result not in (ENDED, APPLIED):
            self.suppressed[cause] = Suppressed(desired, result)
        elif result == ENDED or _ends_once_applied(desired):
            self._remove_newest(field_group(cause.context, desired))
        else:
            assert not isinstance(desired, PodUnschedulable), "it has ended"
            self.applied[cause] = desired

    def _set_newest(self, group: FieldGroup, cause: Cause) -> None:
        self.newest[group] = cause
        self.field_groups.setdefault(ObjectRef(group.resource, group.key), {})[group] = None
        self._rank(group)

    def _remove_newest(self, group: FieldGroup) -> None:
        cause = self.newest.pop(group)
        self.desired_ns.pop(cause, None)
        self.outranked.pop(cause, None)
        ref = ObjectRef(group.resource, group.key)
        groups = self.field_groups[ref]
        del groups[group]
        if not groups:
            del self.field_groups[ref]
        self._rank(group)

    def _rank(self, changed: FieldGroup) -> None:
        """Chooses anew among the shards that desire the fields of a group that changed."""
        if not (family := _family(changed.context)):
            return
        groups = self.field_groups.get(ObjectRef(changed.resource, changed.key), {})
        rivals = [
            self.newest[group]
            for group in groups
            if group.fields == changed.fields and _family(group.context) == family
        ]
        counts = max(rivals, key=lambda cause: (self.desired_ns[cause], cause.context), default=None)
        for cause in rivals:
            if cause == counts:
                self.outranked.pop(cause, None)
            else:
                self.outranked[cause] = None

    def _enqueue(self, cause: Cause, intent: Intent) -> None:
        self.queues.setdefault(object_ref(intent), {})[cause] = None

    def _dequeue(self, cause: Cause, intent: Intent) -> None:
        ref = object_ref(intent)
        queue = self.queues[ref]
        del queue[cause]
        if not queue:
            del self.queues[ref]

    # -- snapshots

    def stored(self) -> StoredIntents:
        """Returns the stored form."""
        return StoredIntents(
            one_shots=by_context(self.one_shots),
            recorded_ns=by_context(self.recorded_ns),
            desired_ns=by_context(self.desired_ns),
            desired=by_context(self.desired),
            superseded=by_context(self.superseded),
            applied=by_context(self.applied),
            given_up=by_context(self.given_up),
            suppressed=by_context(self.suppressed),
            refused=by_context(self.refused),
            early_outcomes=by_context(self.early_outcomes),
        )

    def restore(self, stored: StoredIntents) -> None:
        """Restores what `stored` returned, and derives the rest."""
        self.one_shots, self.desired = by_cause(stored.one_shots), by_cause(stored.desired)
        self.recorded_ns, self.desired_ns = by_cause(stored.recorded_ns), by_cause(stored.desired_ns)
        self.superseded = by_cause(stored.superseded)
        self.applied, self.suppressed = by_cause(stored.applied), by_cause(stored.suppressed)
        self.given_up, self.refused = by_cause(stored.given_up), by_cause(stored.refused)
        self.early_outcomes = by_cause(stored.early_outcomes)
        suppressed = [(cause, each.desired) for cause, each in self.suppressed.items()]
        for cause, desired in (*self.desired.items(), *self.applied.items(), *self.given_up.items(), *suppressed):
            self._set_newest(field_group(cause.context, desired), cause)
        for cause, intent in sorted((*self.one_shots.items(), *self.desired.items()), key=itemgetter(0)):
            self._enqueue(cause, intent)


@cache
def _family(context: str) -> str:
    """Returns the name of a sharded context that its shards have in common; empty of one that is not sharded."""
    name = declared_name(context)
    return name if name != context else ""


def _ends_once_applied(desired: DesiredState) -> bool:
    """Reports whether a desired state ends once it is applied: a pod's condition, the absence of an object, and fields
    that are written once.
    """
    if isinstance(desired, FieldsDesired):
        return is_written_once(desired)
    return isinstance(desired, PodUnschedulable) or desired.body is None
