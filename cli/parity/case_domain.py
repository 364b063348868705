"""Domains of recorded cases, and the rules by which an answer may differ from upstream's."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Answer = Callable[[str, Mapping[str, Any]], Any]
"""(op, input) -> output, in the shape of the recorded output."""


class Rule(NamedTuple):
    """A situation in which our answer differs from upstream's on purpose.

    Attributes:
        section: heading in docs/compat.md that gives the reason.
        recognises: whether an input (op, input) is such a situation; it never sees the case's name or output.
        upstream: predicts upstream's answer from the input alone; it must equal the recorded output.
    """

    section: str
    recognises: Callable[[str, Mapping[str, Any]], bool]
    upstream: Answer


class Domain(NamedTuple):
    """One domain: the file `NAME.jsonl` of a folder of cases.

    Attributes:
        answer: runs our code, as production runs it.
        rules: the differences that docs/compat.md argues for.
        remarks: members of a recorded output that are not compared: comments on the case, and intermediate steps of
            upstream that have no counterpart here, whose effect shows in another member.
        argued_share: the largest share of the cases that rules may explain.
    """

    answer: Answer
    rules: tuple[Rule, ...] = ()
    remarks: frozenset[str] = frozenset()
    argued_share: float = 0.02


DOMAINS = (
    "loadaware",
    "cpuset",
    "numa",
    "device",
    "fit-plus",
    "stock",
    "reservation",
    "quota-runtime",
    "quota-admission",
    "cpusuppress",
    "node-qos",
    "overcommit",
    "prediction",
    "gang",
    "webhook",
    "lownodeload",
    "arbitrator",
)
"""The domains there are; each is `DOMAIN` of the module of that name in `cli.parity.domains`."""


def load(name: str) -> Domain:
    """Imports a domain; its code is imported with it, so only for those that are needed."""
    domain: Domain = importlib.import_module(f"cli.parity.domains.{name.replace('-', '_')}").DOMAIN
    return domain
