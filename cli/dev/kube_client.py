"""A small blocking client of the Kubernetes API, for setting up a cluster.

Tests of the gateway use the gateway's own.
"""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from shared.errors import KoordError

Object = dict[str, Any]

RESPONDS_WITHIN_S = 70.0
"""Longer than the API server's own limit of 60 s for a request, after which it responds with 504."""

PATCH_TYPES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class ApiRefused(KoordError):
    """The API server answered with an error.

    Attributes:
        status: the HTTP status.
        reason: the API's own word (`NotFound`, `AlreadyExists`, `Forbidden`, ...), or "".
    """

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        try:
            answer = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError:
            answer = {"message": body.decode(errors="replace")}
        self.status = status
        self.reason = str(answer.get("reason", ""))
        super().__init__(f"{method} {path}: {status} {answer.get('message', '')}")


class Api:
    """Calls as one user against one API server.

    Attributes:
        host, port: where the API server listens.
        tls: trusts the cluster's authority; holds the client certificate if the user has one.
        token: a bearer token, for a service account.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, token: str = "") -> None:
        self.host = host
        self.port = port
        self.tls = tls
        self.token = token

    @contextmanager
    def session(self, timeout_s: float = RESPONDS_WITHIN_S) -> Iterator["Session"]:
        """One connection for many calls in a row, from one thread."""
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.tls, timeout=timeout_s)
        try:
            yield Session(connection, self.token)
        finally:
            connection.close()

    def call(self, method: str, path: str, body: object = None, *, patch: str = "merge") -> Object:
        """One call on a connection of its own; see `Session.call`."""
        with self.session() as session:
            return session.call(method, path, body, patch=patch)

    def ready(self, path: str = "/readyz") -> bool:
        """Reports whether the server responds to `path` with 200, now; False for a refused connection."""
        try:
            with self.session(timeout_s=2) as session:
                return session.send("GET", path)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


class Session:
    """Calls on one connection."""

    def __init__(self, connection: http.client.HTTPSConnection, token: str) -> None:
        self._connection = connection
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def call(self, method: str, path: str, body: object = None, *, patch: str = "merge", accept: str = "") -> Object:
        """Sends one request with a JSON body; returns the decoded answer.

        Args:
            method: of HTTP.
            path: of HTTP, with its query.
            body: anything that JSON can say; None sends none.
            patch: "merge" or "strategic", what the body of a PATCH is.
            accept: a media type other than plain JSON.

        Raises:
            ApiRefused: any status from 400 on.
            OSError: the server is not there.
        """
        content_type = PATCH_TYPES[patch] if method == "PATCH" else "application/json"
        data = None if body is None else msgspec.json.encode(body)
        status, answer = self.send(
            method, path, data, {"Content-Type": content_type, "Accept": accept or "application/json"}
        )
        if status >= http.client.BAD_REQUEST:
            raise ApiRefused(method, path, status, answer)
        return msgspec.json.decode(answer, type=dict[str, Any])

    def lines(self, path: str) -> Iterator[Object]:
        """Yields the objects of a response with one a line, such as a watch, until the server ends it.

        Raises:
            ApiRefused: any status from 400 on.
            OSError: the server is not there, or sent nothing for longer than the session's time-out.
        """
        self._connection.request("GET", path, None, self._headers)
        with self._connection.getresponse() as answer:
            if answer.status >= http.client.BAD_REQUEST:
                raise ApiRefused("GET", path, answer.status, answer.read())
            for line in answer:
                yield msgspec.json.decode(line, type=dict[str, Any])

    def send(
        self, method: str, path: str, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Sends bytes; returns the status and the body."""
        self._connection.request(method, path, data, self._headers | (headers or {}))
        with self._connection.getresponse() as answer:
            return answer.status, answer.read()
