"""How the simulated API says no: the status, the reason and the message that a Kubernetes API server would give."""

from typing import Any

from shared.errors import KoordError


class Refused(KoordError):
    """A request that the API refuses.

    Attributes:
        code: the HTTP status.
        reason: the API's word for it: `NotFound`, `AlreadyExists`, `Conflict`, `Forbidden`, `Invalid`, `BadRequest`.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    def status(self) -> dict[str, Any]:
        """The answer as a Kubernetes `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }


def not_found(resource: str, key: str) -> Refused:
    """404: there is no such object."""
    return Refused(404, "NotFound", f'{resource} "{key}" not found')


def already_exists(resource: str, key: str) -> Refused:
    """409: the name is taken."""
    return Refused(409, "AlreadyExists", f'{resource} "{key}" already exists')


def conflict(resource: str, key: str, why: str) -> Refused:
    """409: the object is not what the request takes it for."""
    return Refused(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{key}": {why}')


def forbidden(resource: str, key: str, why: str) -> Refused:
    """403: an admission rule says no."""
    return Refused(403, "Forbidden", f'{resource} "{key}" is forbidden: {why}')


def invalid(kind: str, key: str, field: str, why: str) -> Refused:
    """422: a field of the object is wrong."""
    return Refused(422, "Invalid", f'{kind} "{key}" is invalid: {field}: {why}')


def bad_request(why: str) -> Refused:
    """400: the request cannot be read."""
    return Refused(400, "BadRequest", why)
