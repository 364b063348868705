"""Rules that explain a quota case: upstream's quirks are added to an exact model one after the other.

The model without any quirk gives production's answer, the one with all of them upstream's. A quirk acts where it
changes the answer. Where the two ends differ at least one rule recognises the case, whichever quirks hide each other.
"""

from collections.abc import Callable, Mapping
from typing import Any

from cli.parity.case_domain import Rule
from cli.parity.upstream.quota.quirks import ALL, Quirk, Quirks

Predicted = Callable[[str, Mapping[str, Any], Quirks], dict[str, Any]]
"""(op, input, quirks) -> output."""


def rules_of(predicted: Predicted) -> tuple[Rule, ...]:
    """Returns one rule per quirk, in the order of the quirks."""
    ladder = _Ladder(predicted)
    return tuple(Rule(quirk.value, ladder.acts(quirk), ladder.upstream) for quirk in Quirk)


class _Ladder:
    """The answers to the newest case by the quirks that they have, so that the rules of a case compute each once."""

    def __init__(self, predicted: Predicted) -> None:
        self._predicted = predicted
        self._given: Mapping[str, Any] | None = None
        self._answers: dict[Quirks, dict[str, Any]] = {}

    def acts(self, quirk: Quirk) -> Callable[[str, Mapping[str, Any]], bool]:
        """Returns a test of an input: whether a quirk changes the answer of the model with all quirks before it."""
        quirks = list(Quirk)
        before = frozenset(quirks[: quirks.index(quirk)])
        return lambda op, given: self._answer(op, given, before) != self._answer(op, given, before | {quirk})

    def upstream(self, op: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns upstream's answer."""
        return self._answer(op, given, ALL)

    def _answer(self, op: str, given: Mapping[str, Any], quirks: Quirks) -> dict[str, Any]:
        if given is not self._given:
            self._given, self._answers = given, {}
        if quirks not in self._answers:
            self._answers[quirks] = self._predicted(op, given, quirks)
        return self._answers[quirks]
