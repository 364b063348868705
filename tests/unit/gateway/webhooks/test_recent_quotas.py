"""Quotas that were just admitted count until they are observed or too old."""

import pytest

from services.gateway.webhooks.admission_handlers import AdmissionHandlers, AdmissionSettings
from services.gateway.webhooks.admission_state import AdmissionState
from services.gateway.webhooks.recent_quotas import KEPT_S, RecentQuotas
from shared.admission.feature_gates import gates_of
from shared.admission.rejection import AdmissionRejected
from tests.unit.gateway.webhooks.admission_cluster import QUOTAS, SYSTEM, admission_request, cluster, gone, quota


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def state() -> AdmissionState:
    state = cluster()
    state.apply(quota("org", is_parent=True))
    return state


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def handlers(state: AdmissionState, clock: Clock) -> AdmissionHandlers:
    return AdmissionHandlers(state, tuple, AdmissionSettings(gates_of(""), SYSTEM), RecentQuotas(clock))


def test_the_second_child_sees_the_first_before_it_is_observed(
    handlers: AdmissionHandlers, state: AdmissionState
) -> None:
    handlers.validate_quota(admission_request("CREATE", quota("one", "org").object))
    with pytest.raises(AdmissionRejected, match="with it the children of org have a min"):
        handlers.validate_quota(admission_request("CREATE", quota("two", "org").object))
    state.apply(quota("one", "org"))
    with pytest.raises(AdmissionRejected, match=r"have a min of cpu 10, above the min of .*, cpu 5: lower"):
        handlers.validate_quota(admission_request("CREATE", quota("two", "org").object))
    state.apply(gone(QUOTAS, "web/one"))
    handlers.validate_quota(admission_request("CREATE", quota("two", "org").object))


def test_an_admitted_quota_that_is_never_stored_is_forgotten(handlers: AdmissionHandlers, clock: Clock) -> None:
    handlers.validate_quota(admission_request("CREATE", quota("one", "org").object))
    handlers.validate_quota(
        admission_request("CREATE", quota("one", "org").object)
    )  # again, after another webhook refused it
    clock.now = KEPT_S
    handlers.validate_quota(admission_request("CREATE", quota("two", "org").object))


def test_a_parent_can_be_deleted_after_its_child(handlers: AdmissionHandlers, state: AdmissionState) -> None:
    state.apply(quota("one", "org"))
    with pytest.raises(AdmissionRejected, match="has the children one"):
        handlers.validate_quota(admission_request("DELETE", None, quota("org").object))
    handlers.validate_quota(admission_request("DELETE", None, quota("one").object))
    handlers.validate_quota(admission_request("DELETE", None, quota("org").object))
