"""Results of classes of pods by the number of the state that a node is in, looked up for many nodes at once."""

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission
from services.scheduler.plugins.device_share.pod_device_requests import RequestedDevices
from services.scheduler.plugins.helper.rejections import Rejection

MAX_STATES = 8_192
"""Number of states whose results are kept, beyond those that are looked up."""

MAX_CLASSES = 256
"""Number of classes whose results are kept."""

_NONE = np.zeros(0, np.int64)


class ResultsByState:
    """Results by the numbers of states, of which none is ever used again for another state."""

    def __init__(self) -> None:
        self._known = _NONE, _NONE  # numbers, ascending, and their results

    def of(self, numbers: Int64, find: Callable[[int], int]) -> Int64:
        """[numbers]: the result of each.

        Args:
            find: the result of the state at a place in `numbers`; called once for each state that is not known.
        """
        known, results = self._known
        places = np.minimum(np.searchsorted(known, numbers), max(len(known) - 1, 0))
        lacking = np.flatnonzero(known[places] != numbers) if len(known) else np.arange(len(numbers))
        if not len(lacking):
            return results[places]
        new, first = np.unique(numbers[lacking], return_index=True)
        more = np.array([find(place) for place in lacking[first].tolist()], np.int64)
        if len(known) + len(new) > MAX_STATES:
            kept = np.isin(known, numbers)
            known, results = known[kept], results[kept]
        known = np.concatenate((known, new))
        order = np.argsort(known)
        known, results = known[order], np.concatenate((results, more))[order]
        self._known = known, results
        return results[np.searchsorted(known, numbers)]


class ResultsOfClass:
    """The results of one class.

    Attributes:
        filters: by state, codes: 0 for a node that passes, else a place in `rejections`, from 1.
        unfit: by state, codes of what labels and settings exclude.
        scores: by state.
    """

    def __init__(self) -> None:
        self.filters = ResultsByState()
        self.unfit = ResultsByState()
        self.scores = ResultsByState()
        self.rejections: dict[Rejection, int] = {}

    def code_of(self, admission: DeviceAdmission) -> int:
        """The code of a filter result."""
        return self._code(admission.rejection)

    def unfit_code(self, admission: DeviceAdmission) -> int:
        """The code of a node that is rejected by its labels and the settings."""
        return self._code(admission.unfit)

    def _code(self, rejection: Rejection | None) -> int:
        return 0 if rejection is None else self.rejections.setdefault(rejection, len(self.rejections) + 1)


class ResultsByClass:
    """The results of classes, by what they request."""

    def __init__(self) -> None:
        self._of: dict[Hashable, ResultsOfClass] = {}

    def of(self, requested: RequestedDevices, templates: Mapping[str, tuple[str, ...]] | None) -> ResultsOfClass:
        """The results of a class.

        Args:
            templates: result of `matched_templates`.
        """
        key = requested.key if templates is None else (requested.key, tuple(templates.items()))
        found = self._of.get(key)
        if found is None:
            if len(self._of) >= MAX_CLASSES:
                self._of.clear()
            found = self._of[key] = ResultsOfClass()
        return found
