"""What a domain of recorded cases is, which there are, and what makes a difference a documented one."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Answer = Callable[[str, Mapping[str, Any]], Any]
"""(op, input) -> output, in the shape of the recorded output."""


class Rule(NamedTuple):
    """A situation in which we differ from upstream on purpose.

    Attributes:
        name: heading in docs/compat.md that says why ours is right.
        recognises: whether an input (op, input) is such a situation; it never sees the case's name.
        upstream: what upstream answers there; it must equal the recorded output.
    """

    name: str
    recognises: Callable[[str, Mapping[str, Any]], bool]
    upstream: Answer


class Domain(NamedTuple):
    """One domain: the file `NAME.jsonl` of a folder of cases.

    Attributes:
        answer: our code.
        rules: the documented differences.
        remarks: members of a recorded output that are the recorder's words about the case, not an answer of upstream's; not compared.
    """

    answer: Answer
    rules: tuple[Rule, ...] = ()
    remarks: frozenset[str] = frozenset()


DOMAINS = (
    "loadaware",
    "cpuset",
    "numa",
    "fit-plus",
    "stock",
    "quota-runtime",
    "quota-admission",
    "cpusuppress",
    "node-qos",
    "overcommit",
    "prediction",
    "webhook",
)
"""The domains there are; each is `DOMAIN` of the module of that name in `cli.parity.domains`."""


def load(name: str) -> Domain:
    """Import a domain; its code is imported with it, so only for those that are needed."""
    domain: Domain = importlib.import_module(f"cli.parity.domains.{name.replace('-', '_')}").DOMAIN
    return domain
