"""Node labels as columns of value numbers, so that a selector is a comparison of integers over all nodes."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.array_types_and_row_selection import Bools
from shared.kube.selectors import Requirement

Numbers = NDArray[np.int32]

ABSENT = -1
"""Number of a label that a node does not have."""


class NodeLabelColumns:
    """The number of each node's value, per label key that a selector has named.

    A column is created when a selector first names its key; labels that no selector names cost nothing.
    """

    def __init__(self) -> None:
        self._labels: list[dict[str, str]] = []
        self._columns: dict[str, Numbers] = {}
        self._values: dict[str, dict[str, int]] = {}

    def set(self, row: int, labels: dict[str, str]) -> None:
        """Sets the labels of the node in a row."""
        while len(self._labels) <= row:
            self._labels.append({})
        self._labels[row] = labels
        for key, column in self._columns.items():
            if row < len(column):
                column[row] = self._number(key, labels.get(key))

    def of(self, row: int) -> dict[str, str]:
        """Returns the labels of the node in a row."""
        return self._labels[row]

    def matches(self, requirement: Requirement, size: int) -> Bools:
        """Returns bool[size]: the rows whose labels meet one expression.

        In, NotIn, Exists, DoesNotExist; NotIn and DoesNotExist hold without the label. Gt and Lt compare integers and
        hold only for a label that is one, as Kubernetes does. An operator that does not exist matches nothing.
        """
        column = self._column(requirement.key, size)[:size]
        operator = requirement.operator
        has: Bools = column != ABSENT
        if operator == "Exists":
            return has
        if operator == "DoesNotExist":
            return ~has
        numbers = self._values[requirement.key]
        if operator in ("In", "NotIn"):
            listed = [numbers[value] for value in requirement.values if value in numbers]
            found: Bools = np.isin(column, np.array(listed, np.int32)) if listed else np.zeros(size, np.bool_)
            return found if operator == "In" else ~found
        if operator in ("Gt", "Lt") and len(requirement.values) == 1 and _is_integer(requirement.values[0]):
            bound = int(requirement.values[0])
            fits = [
                _is_integer(value) and (int(value) > bound if operator == "Gt" else int(value) < bound)
                for value in numbers
            ]
            table = np.array([*fits, False], np.bool_)  # the last one is ABSENT's
            return table[column]
        return np.zeros(size, np.bool_)

    def numbers(self, key: str, size: int) -> tuple[Numbers, int]:
        """Returns int32[size], the number of each row's value of the label (ABSENT without it), and the number of
        values.
        """
        column = self._column(key, size)[:size]
        return column, len(self._values[key])

    def _column(self, key: str, size: int) -> Numbers:
        column = self._columns.get(key)
        if column is None or len(column) < size:
            room = max(size, 64) * 2
            column = np.full(room, ABSENT, np.int32)
            self._values.setdefault(key, {})
            for row, labels in enumerate(self._labels):
                column[row] = self._number(key, labels.get(key))
            self._columns[key] = column
        return column

    def _number(self, key: str, value: str | None) -> int:
        if value is None:
            return ABSENT
        numbers = self._values[key]
        return numbers.setdefault(value, len(numbers))


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdigit()
