"""What is kept of ScheduleExplanation objects: the questions, and what was last said to each."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from shared.kube import resource_names

EXPLANATIONS = resource_names.EXPLANATIONS
KEPT_NS = 24 * 3600 * 1_000_000_000
"""How long an answer is remembered whose question is no longer answered."""


class LastAnswer(NamedTuple):
    """What was last said to a question.

    Attributes:
        uid: the object's; another one under the same name is another question.
        digest: of the answer without its time.
    """

    uid: str
    at_ns: int
    digest: str


def digest_of(answer: Mapping[str, Any]) -> str:
    """Of an answer without its time."""
    plain = {name: value for name, value in answer.items() if name != "lastUpdateTime"}
    return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def forget_old(answered: dict[str, LastAnswer], now_ns: int) -> None:
    """Drop what was said so long ago that its question must be gone: one that is there is answered each minute."""
    for key in [key for key, said in answered.items() if said.at_ns < now_ns - KEPT_NS]:
        del answered[key]
