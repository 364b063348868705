"""ScheduleExplanation objects in the State: the requests, and the digest of the last answer to each."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from shared.kube import resource_names

EXPLANATIONS = resource_names.EXPLANATIONS
KEPT_NS = 24 * 3600 * 1_000_000_000
"""Retention of an answer after its request was last answered."""


class LastAnswer(NamedTuple):
    """The last answer to a ScheduleExplanation.

    Attributes:
        uid: of the object; an object created anew under the same name is a new request.
        digest: of the answer without its time.
    """

    uid: str
    at_ns: int
    digest: str


def digest_of(answer: Mapping[str, Any]) -> str:
    """Returns the digest of an answer without its time."""
    plain = {name: value for name, value in answer.items() if name != "lastUpdateTime"}
    return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def forget_old(answered: dict[str, LastAnswer], now_ns: int) -> None:
    """Drops answers whose request must have been deleted: every existing request is answered each minute."""
    for key in [key for key, answer in answered.items() if answer.at_ns < now_ns - KEPT_NS]:
        del answered[key]
