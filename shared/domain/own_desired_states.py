"""The newest desired states of a service's own context, ended by the deletion of their objects in `cluster`.

The two contexts have no order among each other. A desired state that was decided before a deletion, and a deletion that
is folded before the desired state, must give the same result, so deletions are kept until the service has read past
them.
"""

from collections import deque
from typing import Any, NamedTuple

from shared.events import Event
from shared.events.intents import FieldsDesired, ObjectDesired


class DesiredFields(NamedTuple):
    """The newest desired value of a field group.

    Attributes:
        seen: the position in `cluster` up to which the service had read when it decided the value.
    """

    seen: int
    value: dict[str, Any]


def object_key(resource: str, name: str) -> str:
    """Returns the key under which facts about an object are stored."""
    return f"{resource} {name}"


class OwnDesiredStates:
    """The part of a State that folds its own FieldsDesired and ObjectDesired.

    Attributes:
        desired_fields: object -> field group -> its newest desired value; the group of a whole object is "".
        cluster_seen: position in `cluster` up to which the service had read at its newest append.
        deleted_at: object -> `cluster` seqs of its deletions, each of which ends the values desired before it; until
            the service has read that far, for a value that was desired before it may still be folded.
    """

    def __init__(self) -> None:
        self.desired_fields: dict[str, dict[str, DesiredFields]] = {}
        self.cluster_seen = 0
        self.deleted_at: dict[str, list[int]] = {}
        self._deletions: deque[tuple[int, str]] = deque()  # those in `deleted_at`, in order of seq

    def desired(self, resource: str, name: str, fields: str = "") -> dict[str, Any] | None:
        """Returns the desired value of a field group of the existing object; None: none was decided since its creation."""
        key = object_key(resource, name)
        newest = self.desired_fields.get(key, {}).get(fields)
        return None if newest is None or self.deleted_at.get(key, (0,))[-1] > newest.seen else newest.value

    def is_newest(self, event: FieldsDesired | ObjectDesired) -> bool:
        """Reports whether an event has the newest value that was decided of its field group, as retention keeps it."""
        fields, value = (event.fields, event.patch) if isinstance(event, FieldsDesired) else ("", event.body)
        found = self.desired_fields.get(object_key(event.resource, event.name), {}).get(fields)
        return found is not None and found.value == value

    def _fold_desired(self, event: Event) -> None:
        """Folds an event of the own context: the positions that its append rests on, then what it desires."""
        if event.seen:
            self._has_seen(event.seen.get("cluster", 0))
        match event:
            case FieldsDesired(resource=resource, name=name, fields=fields, patch=patch):
                groups = self.desired_fields.setdefault(object_key(resource, name), {})
                groups[fields] = DesiredFields(self.cluster_seen, patch)
            case ObjectDesired(resource=resource, name=name, body=None):
                self.desired_fields.pop(object_key(resource, name), None)
            case ObjectDesired(resource=resource, name=name, body=dict() as body):
                groups = self.desired_fields.setdefault(object_key(resource, name), {})
                groups[""] = DesiredFields(self.cluster_seen, body)

    def _end_desired(self, key: str, seq: int) -> None:
        """Ends the values that were desired before an object was deleted."""
        if seq > self.cluster_seen:
            self.deleted_at.setdefault(key, []).append(seq)
            self._deletions.append((seq, key))
        else:
            self._forget_desired(key, seq)

    def _has_seen(self, seq: int) -> None:
        """Moves the position to which the service has read, and forgets deletions up to it."""
        self.cluster_seen = max(self.cluster_seen, seq)
        while self._deletions and self._deletions[0][0] <= self.cluster_seen:
            deleted, key = self._deletions.popleft()
            self._forget_desired(key, deleted)
            self.deleted_at[key].remove(deleted)
            if not self.deleted_at[key]:
                del self.deleted_at[key]

    def _forget_desired(self, key: str, deleted_seq: int) -> None:
        groups = self.desired_fields.get(key, {})
        for fields in [fields for fields, desired in groups.items() if desired.seen < deleted_seq]:
            del groups[fields]
        if not groups:
            self.desired_fields.pop(key, None)

    def _restore_deletions(self) -> None:
        """Rebuilds the order of the deletions after `deleted_at` was restored."""
        self._deletions = deque(sorted((seq, key) for key, seqs in self.deleted_at.items() for seq in seqs))
