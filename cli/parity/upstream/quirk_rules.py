"""Rules that explain a case by upstream's quirks, which are added to an exact model one after the other.

The model without any quirk gives production's answer, the one with all of them upstream's. A quirk acts where it
changes the answer. Where the two ends differ at least one rule recognises the case, whichever quirks hide each other.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

from cli.parity.case_domain import Rule

Quirk = TypeVar("Quirk", bound=Enum)
Predicted = Callable[[str, Mapping[str, Any], frozenset[Quirk]], dict[str, Any]]
"""(op, input, quirks) -> output."""


def rules_of(predicted: Predicted[Quirk], quirks: type[Quirk]) -> tuple[Rule, ...]:
    """Returns one rule per quirk, in the order of the quirks, whose values are headings of docs/compat.md."""
    ladder = _Ladder(predicted, tuple(quirks))
    return tuple(Rule(quirk.value, ladder.acts(quirk), ladder.upstream) for quirk in quirks)


class _Ladder(Generic[Quirk]):
    """The answers to the newest case by the quirks that they have, so that the rules of a case compute each once."""

    def __init__(self, predicted: Predicted[Quirk], quirks: tuple[Quirk, ...]) -> None:
        self._predicted, self._quirks = predicted, quirks
        self._given: Mapping[str, Any] | None = None
        self._answers: dict[frozenset[Quirk], dict[str, Any]] = {}

    def acts(self, quirk: Quirk) -> Callable[[str, Mapping[str, Any]], bool]:
        """Returns a test of an input: whether a quirk changes the answer of the model with all quirks before it."""
        before = frozenset(self._quirks[: self._quirks.index(quirk)])
        return lambda op, given: self._answer(op, given, before) != self._answer(op, given, before | {quirk})

    def upstream(self, op: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns upstream's answer."""
        return self._answer(op, given, frozenset(self._quirks))

    def _answer(self, op: str, given: Mapping[str, Any], quirks: frozenset[Quirk]) -> dict[str, Any]:
        if given is not self._given:
            self._given, self._answers = given, {}
        if quirks not in self._answers:
            self._answers[quirks] = self._predicted(op, given, quirks)
        return self._answers[quirks]
