"""Addresses of a running system's servers; reading commands need nothing else of the supervisor."""

import msgspec


class Endpoints(msgspec.Struct, frozen=True):
    """Where the servers of a running system are, with the operator's login where there are logins.

    Attributes:
        pid: the process that keeps them, and the services; 0 where it is not known.
        mqtt: empty when no broker is known.
        services: name of a process -> `host:port` of its pages.
        credentials: the folder with each service's own login; empty: all use the URLs as they are here.
    """

    postgres: str
    nats: str
    pid: int = 0
    mqtt: str = ""
    services: dict[str, str] = {}
    credentials: str = ""
