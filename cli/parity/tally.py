"""Runs a domain's cases and counts how many of our answers are upstream's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cli.parity.compare import Difference, difference
from cli.parity.domain import DOMAINS, Domain, load
from shared.errors import KoordError

DOCUMENTED_SHARE = 0.02
"""How much of a domain may differ on purpose; more would be another system. Where upstream crashes is not counted."""

CRASH = {"panic": True}
"""A recorded output that says that upstream crashes."""


class Case(msgspec.Struct, frozen=True):
    """One line of a domain's file. `input` and `output` are what upstream was asked and said."""

    case: str
    op: str
    input: dict[str, Any]
    output: Any


class Different(msgspec.Struct, frozen=True):
    """A case that differs, and where it first does."""

    case: str
    op: str
    path: str
    expected: Any
    found: Any


class Tally(msgspec.Struct):
    """How a domain came out.

    Attributes:
        crashes: how many of the documented cases crash upstream.
    """

    cases: int = 0
    equal: int = 0
    documented: int = 0
    different: int = 0
    crashes: int = 0
    first_different: Different | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing differs but what may."""
        return not self.different and self.documented - self.crashes <= DOCUMENTED_SHARE * self.cases


def tally_folder(folder: Path) -> dict[str, Tally]:
    """Run every domain that the folder has a file of.

    Raises:
        KoordError: there is no file of a known domain, or one cannot be read.
    """
    found = [name for name in DOMAINS if (folder / f"{name}.jsonl").is_file()]
    if not found:
        raise KoordError(f"{folder} holds no cases; expected one of {', '.join(f'{name}.jsonl' for name in DOMAINS)}")
    return {name: tally_file(folder / f"{name}.jsonl", load(name)) for name in found}


def tally_file(path: Path, domain: Domain) -> Tally:
    """Run one domain's cases.

    Raises:
        KoordError: a line is no case.
    """
    tally = Tally()
    for case in read_cases(path):
        tally.cases += 1
        found = _answer(domain, case)
        at = difference(without(case.output, domain.remarks), found)
        if at is None:
            tally.equal += 1
        elif is_documented(domain, case):
            tally.documented += 1
            tally.crashes += case.output == CRASH
        else:
            tally.different += 1
            if tally.first_different is None:
                tally.first_different = Different(case.case, case.op, *at)
    return tally


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a file, line by line.

    Raises:
        KoordError: a line is no case.
    """
    decoder = msgspec.json.Decoder(Case)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise KoordError(f"{path}:{number} is no case: {error}") from error


def is_documented(domain: Domain, case: Case) -> bool:
    """Whether a rule knows this situation by its input, and what upstream answers in it."""
    return any(
        rule.recognises(case.op, case.input) and difference(case.output, rule.upstream(case.op, case.input)) is None
        for rule in domain.rules
    )


def first_difference(domain: Domain, case: Case) -> Difference | None:
    """Where our answer to one case differs from the recorded one, if it does."""
    return difference(without(case.output, domain.remarks), _answer(domain, case))


def without(output: Any, remarks: frozenset[str]) -> Any:
    """A recorded output without the recorder's remarks, at any depth."""
    if not remarks:
        return output
    if isinstance(output, dict):
        return {name: without(part, remarks) for name, part in output.items() if name not in remarks}
    return [without(part, remarks) for part in output] if isinstance(output, list) else output


def _answer(domain: Domain, case: Case) -> Any:
    try:
        return domain.answer(case.op, case.input)
    except Exception as error:  # noqa: BLE001  one case that our code cannot take hides none of the others
        return {"error": f"{type(error).__name__}: {error}"}
