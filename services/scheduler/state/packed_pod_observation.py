"""The numbers of a pod's record that come from its observations, in one bytes object: 8 bytes each instead of 40.

Empty bytes stand for a pod that has not been observed. Bytes end after the first number where all others are 0, as for
most pods that wait: equal numbers are equal bytes.
"""

from struct import Struct
from typing import NamedTuple

NONE = b""

_all = Struct("<5qI")
_since = Struct("<q")
_read_part = Struct("<3qI")
_node_part = Struct("<4qI")
_NODE_SINCE, _READ_PART = _since.size, 2 * _since.size
_ZERO = bytes(_since.size)


class Observation(NamedTuple):
    """The numbers.

    Attributes:
        since: seq of the first observation.
        node_since_ns: append time of the first observation on its node.
        scheduled_ns, initialized_ns: times of its true conditions PodScheduled and Initialized; 0 without them.
        started_ns: start time, 0 before.
        conditions: checksum of its conditions, 0 while it has no node.
    """

    since: int
    node_since_ns: int
    scheduled_ns: int
    initialized_ns: int
    started_ns: int
    conditions: int


_NEVER = Observation(0, 0, 0, 0, 0, 0)


def first_observation(seq: int) -> bytes:
    """Returns the numbers of a pod that is observed for the first time."""
    return _since.pack(seq)


def observed_on_node(data: bytes, at_ns: int) -> bytes:
    """Returns the numbers of a pod that is observed on another node than before."""
    if len(data) == _NODE_SINCE:
        return data + _node_part.pack(at_ns, 0, 0, 0, 0)
    return data[:_NODE_SINCE] + _since.pack(at_ns) + data[_READ_PART:]


def has_other_numbers(data: bytes) -> bool:
    """Returns True where a number beside `since` is known."""
    return len(data) > _NODE_SINCE


def read_from_object(data: bytes, scheduled_ns: int, initialized_ns: int, started_ns: int, conditions: int) -> bytes:
    """Returns the numbers with those of the newest object."""
    if not (scheduled_ns or initialized_ns or started_ns or conditions):
        if len(data) == _NODE_SINCE:
            return data
        if data[_NODE_SINCE:_READ_PART] == _ZERO:
            return data[:_NODE_SINCE]
    since_part = data[:_READ_PART] if len(data) > _NODE_SINCE else data + _ZERO
    return since_part + _read_part.pack(scheduled_ns, initialized_ns, started_ns, conditions)


def since(data: bytes) -> int:
    """Returns the seq of the first observation; 0 before."""
    return _since.unpack_from(data)[0] if data else 0


def observation(data: bytes) -> Observation:
    """Returns all of the numbers; zeros for a pod that has not been observed."""
    if len(data) > _NODE_SINCE:
        return Observation._make(_all.unpack(data))
    return _NEVER._replace(since=since(data)) if data else _NEVER
