"""Errors of the Kubernetes API, translated once from HTTP, so that no other module looks at a status code."""

from services.gateway.kube_api.decoding import status_of
from shared.errors import KoordError

_LOGIN_REFUSED = (
    "the API server does not accept the kubeconfig's login; write a valid token or certificate into it, which is read "
    "again"
)


class ApiError(KoordError):
    """The API did not do what was requested."""


class NotFound(ApiError):
    """404: the object, its namespace, or the whole resource does not exist."""


class Conflict(ApiError):
    """409: the object exists already, has changed meanwhile, or has another uid than the request names."""


class NamespaceTerminating(ApiError):
    """403 because the namespace is being deleted: no permission would help."""


class Forbidden(ApiError):
    """403: the account may not do this.

    Attributes:
        rule: the RBAC rule that would allow it, as `verb resource`.
    """

    def __init__(self, message: str, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


class BlockedByBudget(ApiError):
    """429 because a PodDisruptionBudget allows no more disruptions."""


class Busy(ApiError):
    """429 without a cause, 5xx, no connection, or credentials that are not accepted: not done, and worth a retry.

    Attributes:
        retry_after_s: the pause that the server requests; 0 when it requests none.
    """

    def __init__(self, message: str, retry_after_s: float = 0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unanswered(Busy):
    """A request that got no response, and changed nothing: it was not sent, or only reads.

    Attributes:
        reason: without the request, as `Connection refused`.
    """

    def __init__(self, request: str, reason: str) -> None:
        super().__init__(f"{request}: {reason}")
        self.reason = reason


class IdleWatch(Busy):
    """A watch that the server accepted delivered nothing for longer than bookmarks usually stay away."""


class Ambiguous(ApiError):
    """A request was sent and got no answer (a time-out or a cut connection): it may have been done."""


class Unconfirmed(Busy):
    """A write got no answer, and no read has shown since that it was done: it may still be done."""


class Rejected(ApiError):
    """400, 422 and every other refusal: a retry would get the same answer."""


class Expired(ApiError):
    """410: the version of a watch, or the token of a list, is too old to continue from."""


REFUSALS = (NotFound, NamespaceTerminating, Rejected)
"""Errors for which a retry is of no use."""

WRITES_ON_CONFLICT = 4
"""Reads and writes of an object within one try, when other clients write it at the same time."""


def api_error(status: int, body: bytes, request: str, rule: str) -> ApiError:
    """Returns the error that a response with a status from 400 on stands for.

    Args:
        status: of HTTP.
        body: a Status, or the text of a proxy.
        request: method and path, for the message.
        rule: the RBAC rule that the request needs.
    """
    found = status_of(body)
    message = f"{request}: {status} {found.message or found.reason or 'without a reason'}"
    causes = {cause.reason for cause in found.details.causes} if found.details else set()
    retry_after_s = found.details.retry_after_seconds if found.details else 0
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
            return BlockedByBudget(message)
        case 504 if not request.startswith("GET "):
            # The API server stopped waiting for its own handler, which may still complete the request.
            return Ambiguous(message)
        case 401:
            return Busy(f"{message}: {_LOGIN_REFUSED}", retry_after_s)
        case 429:
            return Busy(message, retry_after_s)
        case _ if status >= 500:
            return Busy(message, retry_after_s)
        case _:
            return Rejected(message)
