"""Faults of overcommitment that were mended: silence taken for zero usage, and requests that no report has yet."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from services.slo_controller.overcommit import calculate
from services.slo_controller.state import slo_state
from shared.domain.cpu_memory import ZERO


def silence_counts_as_zero() -> AbstractContextManager[Any]:
    """Fault 09: a node whose reports stop loses its batch resources."""
    return patch.object(calculate, "_without_reports", lambda _state, _name, _mode, found: found)


def requests_since_the_report_are_overcommitted() -> AbstractContextManager[Any]:
    """Fault 10."""
    return patch.object(slo_state, "unreported_requests", lambda *_: ZERO)


OVERCOMMIT_MUTATIONS = (silence_counts_as_zero, requests_since_the_report_are_overcommitted)
