"""Errors of the simulated API, with the status, reason and message of a Kubernetes API server."""

from typing import Any

from shared.errors import KoordError


class ApiError(KoordError):
    """An error response of the API.

    Attributes:
        code: the HTTP status.
        reason: the API's name of the error: `NotFound`, `AlreadyExists`, `Conflict`, `Forbidden`, `Invalid`,
            `BadRequest`.
    """

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    def status(self) -> dict[str, Any]:
        """Returns the error as a Kubernetes `Status` object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "code": self.code,
        }


def not_found(resource: str, key: str) -> ApiError:
    """404: there is no such object."""
    return ApiError(404, "NotFound", f'{resource} "{key}" not found')


def already_exists(resource: str, key: str) -> ApiError:
    """409: the name is taken."""
    return ApiError(409, "AlreadyExists", f'{resource} "{key}" already exists')


def conflict(resource: str, key: str, why: str) -> ApiError:
    """409: the object is not in the state that the request expects."""
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{key}": {why}')


def forbidden(resource: str, key: str, why: str) -> ApiError:
    """403: an admission rule rejects the object."""
    return ApiError(403, "Forbidden", f'{resource} "{key}" is forbidden: {why}')


def invalid(kind: str, key: str, field: str, why: str) -> ApiError:
    """422: a field of the object is wrong."""
    return ApiError(422, "Invalid", f'{kind} "{key}" is invalid: {field}: {why}')


def bad_request(why: str) -> ApiError:
    """400: the request cannot be read."""
    return ApiError(400, "BadRequest", why)
