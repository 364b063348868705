"""A class of equal pods within a cycle."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.kernels.array_types_and_row_selection import Int64


class EvaluatedClass:
    """A class of equal pods within a cycle, and the indices of the records of its evaluation.

    `recorded_at` is the record for placed pods, `refused_at` that for refused ones. A record also holds for a later pod
    while it is true for it: its node had passed, or no filter result has changed.
    """

    __slots__ = ("evaluation", "futile", "is_prepared", "passed", "recorded_at", "refused_at", "refused_by")

    def __init__(self, evaluation: ClassEvaluation, *, is_prepared: bool) -> None:
        self.evaluation = evaluation
        self.is_prepared = is_prepared  # a plugin may request something before its pods are bound
        self.recorded_at = -1
        self.refused_at = -1
        self.futile = 0
        self.passed: NDArray[np.bool_] | None = None  # rows that passed as recorded at `recorded_at`
        self.refused_by: tuple[Int64, Int64] | None = None  # filters and their results as recorded at `refused_at`

    def forget_records(self) -> None:
        """Drops the indices of records that are undone."""
        self.recorded_at = self.refused_at = -1
        self.passed = self.refused_by = None
