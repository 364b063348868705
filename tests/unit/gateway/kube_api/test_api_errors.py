"""Each HTTP status from 400 on becomes one error."""

import msgspec
import pytest

from services.gateway.kube_api.api_errors import (
    Ambiguous,
    ApiError,
    BlockedByBudget,
    Busy,
    Conflict,
    Expired,
    Forbidden,
    NamespaceTerminating,
    NotFound,
    Rejected,
    api_error,
)


@pytest.mark.parametrize(
    ("status", "cause", "meaning"),
    [
        (400, "", Rejected),
        (401, "", Busy),
        (403, "", Forbidden),
        (403, "NamespaceTerminating", NamespaceTerminating),
        (404, "", NotFound),
        (405, "", Rejected),
        (409, "", Conflict),
        (410, "", Expired),
        (413, "", Rejected),
        (422, "FieldValueInvalid", Rejected),
        (429, "", Busy),
        (429, "DisruptionBudget", BlockedByBudget),
        (500, "", Busy),
        (502, "", Busy),
        (503, "", Busy),
        (504, "", Ambiguous),
    ],
)
def test_each_status_has_one_error(status: int, cause: str, meaning: type[ApiError]) -> None:
    causes = [{"reason": cause, "message": "m"}] if cause else []
    body = msgspec.json.encode({"kind": "Status", "code": status, "message": "because", "details": {"causes": causes}})
    found = api_error(status, body, "POST /x", "create pods/binding")
    assert type(found) is meaning
    assert "POST /x" in str(found)
    assert "because" in str(found)


def test_a_login_that_is_not_accepted_is_named_with_the_remedy() -> None:
    found = api_error(401, b'{"message":"Unauthorized"}', "GET /x", "get pods")
    assert str(found).startswith("GET /x: 401 Unauthorized: the API server does not accept the kubeconfig's login; ")


def test_a_read_that_ended_with_504_changed_nothing() -> None:
    assert type(api_error(504, b"", "GET /x", "list pods")) is Busy


def test_a_missing_permission_names_its_rule() -> None:
    found = api_error(403, b'{"message":"no"}', "POST /x", "create pods/binding")
    assert isinstance(found, Forbidden)
    assert found.rule == "create pods/binding"


def test_a_proxys_page_is_no_status_and_is_quoted() -> None:
    found = api_error(502, b"<html>bad gateway</html>", "GET /x", "get pods")
    assert isinstance(found, Busy)
    assert "bad gateway" in str(found)


def test_a_server_may_request_a_pause() -> None:
    found = api_error(429, b'{"details":{"retryAfterSeconds":3}}', "GET /x", "get pods")
    assert isinstance(found, Busy)
    assert found.retry_after_s == 3
