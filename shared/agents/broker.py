"""Address of the MQTT broker, from KOORD_MQTT, for agents and ingest."""

import ssl
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from shared.errors import KoordError

PORTS = {"mqtt": 1883, "mqtts": 8883}


class BadBroker(KoordError):
    """KOORD_MQTT is not the address of a broker."""

    def __init__(self, why: str) -> None:
        super().__init__(f"KOORD_MQTT {why}; give mqtt://user:password@host:port, or mqtts:// for TLS")


class Broker(NamedTuple):
    """A broker and the login to it."""

    host: str
    port: int
    user: str | None
    password: str | None
    tls: bool

    @classmethod
    def parse(cls, url: str) -> "Broker":
        """Parses KOORD_MQTT; user and password percent-decoded, as in any URL.

        Raises:
            BadBroker: it is invalid; the text holds no password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise BadBroker(f"has no such port: {error}") from error
        if parts.scheme not in PORTS or not parts.hostname:
            raise BadBroker(f"begins with {parts.scheme!r} and names the host {parts.hostname!r}")
        user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
        return cls(parts.hostname, port or PORTS[parts.scheme], user, password, parts.scheme == "mqtts")

    def tls_context(self, ca_file: str = "") -> ssl.SSLContext | None:
        """Returns the TLS context of a connection; None for an unencrypted one.

        Args:
            ca_file: the authority of the broker's certificate; empty: the system's.
        """
        return ssl.create_default_context(cafile=ca_file or None) if self.tls else None
