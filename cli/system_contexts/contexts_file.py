"""The file of the named contexts: for each name the folder of a `koord up`, or servers and the login to use there.

It may hold passwords, so its owner alone reads it. It is replaced whole: a command that is killed leaves the old one.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from shared.errors import KoordError
from shared.file_replacement import replace_file

FILE = "KOORD_CONTEXTS"
"""Variable that names another file."""

SERVERS = {
    "KOORD_POSTGRES": "--postgres",
    "KOORD_NATS": "--nats",
    "KOORD_NATS_NKEY": "--nats-nkey",
    "KOORD_NATS_CA": "--nats-ca",
    "KOORD_STATUSZ": "--statusz",
    "PGSSLROOTCERT": "--postgres-ca",
}
"""The variables by which commands find servers, and the option of `koord context set` for each."""


class SystemContext(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A system. One of the fields is set.

    Attributes:
        folder: of `koord up --dir`, absolute.
        env_file: a file of variables, such as `env/operator.env` of `koord credentials init`; read at each use.
        servers: variable -> value.
    """

    folder: str = ""
    env_file: str = ""
    servers: dict[str, str] = {}


class Contexts(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The content of the file.

    Attributes:
        current: name of the context in use; empty for none.
    """

    current: str = ""
    contexts: dict[str, SystemContext] = {}

    def find(self, name: str) -> SystemContext:
        """Returns the context of this name.

        Raises:
            UnknownContext: there is none.
        """
        if name not in self.contexts:
            raise UnknownContext(name, self)
        return self.contexts[name]


class UnknownContext(KoordError):
    """No context has this name."""

    def __init__(self, name: str, known: Contexts) -> None:
        names = ", ".join(sorted(known.contexts))
        there = f"there are {names}" if names else f"there are none; `koord context set {name} --dir DIR` makes it"
        super().__init__(f"there is no context {name!r}; {there}")


def contexts_file() -> Path:
    """Returns the path of the file: that of KOORD_CONTEXTS, else `koordstream/contexts.json` in the user's
    configuration.
    """
    if named := os.environ.get(FILE, ""):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "koordstream" / "contexts.json"


def read_contexts() -> Contexts:
    """Returns the contexts; none without a file.

    Raises:
        KoordError: the file cannot be read.
    """
    path = contexts_file()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.DecodeError) as error:
        raise KoordError(
            f"{path} cannot be read: {error}; correct it, or delete it and set the contexts anew"
        ) from error
    return found


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """Yields the contexts to change, and replaces the file when the block ends without an error.

    Raises:
        KoordError: the file cannot be read, or not be written.
    """
    path = contexts_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock").open("a")
    except OSError as error:
        raise KoordError(f"{path} cannot be written ({error.strerror}); name another file in {FILE}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = read_contexts()
        yield found
        text = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        try:
            replace_file(path, text, mode=0o600, sync=True)
        except OSError as error:
            raise KoordError(f"{path} cannot be written ({error.strerror}); name another file in {FILE}") from error
