"""Quotas that were let in a moment ago count, until they are observed or too old."""

import pytest

from services.gateway.webhooks.admission_state import AdmissionView
from services.gateway.webhooks.handlers import Desk, Terms
from services.gateway.webhooks.recent_quotas import KEPT_S, Recent
from shared.admission.feature_gates import gates_of
from shared.admission.rejection import Refused
from tests.unit.gateway.webhooks.admission_cluster import QUOTAS, SYSTEM, asked, cluster, gone, quota


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def view() -> AdmissionView:
    view = cluster()
    view.apply(quota("org", is_parent=True))
    return view


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(view: AdmissionView, clock: Clock) -> Desk:
    return Desk(view, tuple, Terms(gates_of(""), SYSTEM), Recent(clock))


def test_the_second_child_sees_the_first_before_it_is_observed(desk: Desk, view: AdmissionView) -> None:
    desk.validate_quota(asked("CREATE", quota("one", "org").object))
    with pytest.raises(Refused, match="with it the children of org have a min"):
        desk.validate_quota(asked("CREATE", quota("two", "org").object))
    view.apply(quota("one", "org"))
    with pytest.raises(Refused, match=r"have a min of cpu 10, above cpu 5"):
        desk.validate_quota(asked("CREATE", quota("two", "org").object))
    view.apply(gone(QUOTAS, "web/one"))
    desk.validate_quota(asked("CREATE", quota("two", "org").object))


def test_what_was_let_in_and_never_stored_is_forgotten(desk: Desk, clock: Clock) -> None:
    desk.validate_quota(asked("CREATE", quota("one", "org").object))
    desk.validate_quota(asked("CREATE", quota("one", "org").object))  # again, after another webhook refused it
    clock.now = KEPT_S
    desk.validate_quota(asked("CREATE", quota("two", "org").object))


def test_a_parent_whose_child_was_let_go_may_go(desk: Desk, view: AdmissionView) -> None:
    view.apply(quota("one", "org"))
    with pytest.raises(Refused, match="has the children one"):
        desk.validate_quota(asked("DELETE", None, quota("org").object))
    desk.validate_quota(asked("DELETE", None, quota("one").object))
    desk.validate_quota(asked("DELETE", None, quota("org").object))
