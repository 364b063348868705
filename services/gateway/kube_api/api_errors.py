"""Every way in which the Kubernetes API says no, translated once from HTTP, so that nothing else looks at a status code."""

from services.gateway.kube_api.api_types import status_of
from shared.errors import KoordError


class ApiProblem(KoordError):
    """The API did not do what was asked."""


class NotFound(ApiProblem):
    """404: the object, its namespace, or the whole resource is not there."""


class Conflict(ApiProblem):
    """409: it exists already, it changed meanwhile, or another object has the name (the uid differs)."""


class NamespaceTerminating(ApiProblem):
    """403 for the reason that the namespace is going away: no permission would help."""


class Forbidden(ApiProblem):
    """403: the account may not do this.

    Attributes:
        rule: the RBAC rule that would allow it, as `verb resource`.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class BudgetRefuses(ApiProblem):
    """429 because a disruption budget has nothing left."""


class Busy(ApiProblem):
    """429 without a cause, 5xx, no connection, or credentials that are not accepted (yet): it was not done, and may be later.

    Attributes:
        retry_after_s: how long the server asks to be left alone; 0 when it does not say.
    """

    def __init__(self, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Ambiguous(ApiProblem):
    """No answer to a request that was sent, by a time-out or a cut connection: it may have been done."""


class Rejected(ApiProblem):
    """400, 422 and every other refusal: asking again would get the same answer."""


class Expired(ApiProblem):
    """410: what was to be continued (a watch, a list) is too old to go on."""


def problem(status: int, body: bytes, asked: str, rule: str) -> ApiProblem:
    """What an answer from 400 on means.

    Args:
        status: of HTTP.
        body: a Status, or whatever a proxy wrote.
        asked: the method and path, for people.
        rule: the RBAC rule that the request needs.
    """
    said = status_of(body)
    message = f"{asked}: {status} {said.message or said.reason or 'without a reason'}"
    causes = {cause.reason for cause in said.details.causes} if said.details else set()
    retry_after_s = said.details.retry_after_seconds if said.details else 0
    match status:
        case 403 if "NamespaceTerminating" in causes:
            return NamespaceTerminating(message)
        case 403:
            return Forbidden(message, rule)
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 410:
            return Expired(message)
        case 429 if "DisruptionBudget" in causes:
            return BudgetRefuses(message)
        case 504:
            return Ambiguous(message)  # the API server gave up waiting for its own handler, which may go on
        case 401 | 429:
            return Busy(message, retry_after_s)
        case _ if status >= 500:
            return Busy(message, retry_after_s)
        case _:
            return Rejected(message)
