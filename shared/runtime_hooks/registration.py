"""The file by which a hook server registers at a runtime proxy. Source: spec/node-agent.md 5.4."""

from typing import Literal

import msgspec

from shared.errors import KoordError
from shared.runtime_hooks.stages import STAGES
from shared.type_error_words import in_plain_words

MAX_BYTES = 65_536
MAX_SOCKET_PATH = 107
"""Bytes of the path of a unix socket."""


class Registration(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One hook server.

    Attributes:
        remote_endpoint: the absolute path of its unix socket.
        failure_policy: a hook that fails: `Fail` refuses the kubelet's request; `Ignore`, as the empty text, forwards
            it without the hook.
        runtime_hooks: stages at which it is called.
    """

    remote_endpoint: str
    failure_policy: Literal["Fail", "Ignore", ""] = ""
    runtime_hooks: tuple[str, ...] = ()

    @property
    def refuses(self) -> bool:
        """True where a failure refuses the request."""
        return self.failure_policy == "Fail"


class BadRegistration(KoordError):
    """A file that is no registration; the text names file, field and remedy."""


def read_registration(file: str, data: bytes) -> Registration:
    """Reads a registration. Fields and stages that are not known are left out (`unknown_stages` names the latter).

    Args:
        file: for the text of an error.

    Raises:
        BadRegistration: it is no such file.
    """
    if len(data) > MAX_BYTES:
        raise BadRegistration(f"{file} is longer than {MAX_BYTES} bytes; it is no registration of a hook server")
    try:
        found = msgspec.json.decode(data, type=Registration)
    except msgspec.ValidationError as error:
        raise BadRegistration(
            f"{file}: {in_plain_words(str(error))}; give remote-endpoint (the path of a unix socket), failure-policy "
            "(Fail, Ignore or empty) and runtime-hooks (a list of stages)"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRegistration(f"{file} is not JSON: {error}") from error
    path = found.remote_endpoint.removeprefix("unix://")
    if not path.startswith("/") or "\0" in path or len(path.encode(errors="replace")) > MAX_SOCKET_PATH:
        raise BadRegistration(
            f"{file}: remote-endpoint is {found.remote_endpoint!r}; give the absolute path of the hook server's unix "
            f"socket, of at most {MAX_SOCKET_PATH} bytes"
        )
    return msgspec.structs.replace(found, remote_endpoint=path)


def unknown_stages(registration: Registration) -> list[str]:
    """Returns the stages that no program of this release calls."""
    return [stage for stage in registration.runtime_hooks if stage not in STAGES]


def encode_registration(registration: Registration) -> bytes:
    """Returns the file of a registration, indented with tabs as upstream's agent writes it."""
    return msgspec.json.format(msgspec.json.encode(registration), indent=1).replace(b"\n ", b"\n\t")
