"""Object limiters: how often pods of one workload, or of one namespace, are evicted over time.

Each object has a token bucket in integers: an eviction takes one token, and `tokens` come back in `duration`. Pure: the
instant is an argument.

Source: spec/descheduler.md 3.9; upstream pkg/descheduler/controllers/migration/controller.go.
"""

from typing import NamedTuple

import msgspec

WORKLOAD, NAMESPACE = "workload", "namespace"


class Limit(NamedTuple):
    """A limiter of the configuration for one object.

    Attributes:
        tokens: evictions that the object allows within a duration; 0: it is not limited.
        duration_ns: 0 turns the limiter off.
        burst: evictions at once; 0 counts as 1.
    """

    tokens: int
    duration_ns: int
    burst: int = 0

    @property
    def is_off(self) -> bool:
        """Reports whether the limiter limits nothing."""
        return self.tokens <= 0 or self.duration_ns <= 0

    @property
    def capacity(self) -> int:
        """Returns the size of a full bucket, in parts: see `Bucket`."""
        return max(self.burst, 1) * self.duration_ns


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """The bucket of an object after its last eviction.

    Attributes:
        parts: tokens times `duration_ns`, so that all arithmetic is in integers.
        tokens, duration_ns: the rate: tokens in a duration.
        at_ns: instant of the last eviction.
    """

    parts: int
    tokens: int
    duration_ns: int
    at_ns: int

    def parts_at(self, capacity: int, now_ns: int) -> int:
        """Returns the parts in the bucket at an instant."""
        return min(capacity, self.parts + max(now_ns - self.at_ns, 0) * self.tokens)

    def is_forgotten(self, now_ns: int) -> bool:
        """Reports whether the last eviction is so long ago that the object is not limited any more."""
        return 2 * (now_ns - self.at_ns) > 3 * self.duration_ns


def after_eviction(bucket: Bucket | None, limit: Limit, now_ns: int) -> Bucket | None:
    """Returns the bucket after an eviction that took place; None where the object is not limited.

    An eviction with an empty bucket counts as done; there is never less than nothing in it.
    """
    if limit.is_off:
        return None
    if bucket is None or bucket.is_forgotten(now_ns) or bucket.duration_ns != limit.duration_ns:
        parts = limit.capacity
    else:
        parts = bucket.parts_at(limit.capacity, now_ns)
    taken = parts - limit.duration_ns
    return Bucket(taken if taken >= 0 else parts, limit.tokens, limit.duration_ns, now_ns)


def is_exceeded(bucket: Bucket | None, limit: Limit, now_ns: int) -> bool:
    """Reports whether an object must wait: it has a bucket with less than a token."""
    if limit.is_off or bucket is None or bucket.is_forgotten(now_ns) or bucket.duration_ns != limit.duration_ns:
        return False
    return bucket.parts_at(limit.capacity, now_ns) < limit.duration_ns


def exceeded_until_ns(bucket: Bucket, limit: Limit) -> int:
    """Returns the first instant at which an object that must wait has a token again, without another eviction.

        at + min( ceil( (duration - parts) / tokens ), first instant at which the bucket is forgotten )

    In nanoseconds since the epoch. Source: spec/descheduler.md 3.9.
    """
    refilled_ns = -((bucket.parts - limit.duration_ns) // bucket.tokens)
    return bucket.at_ns + min(refilled_ns, 3 * bucket.duration_ns // 2 + 1)
