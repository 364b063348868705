"""The secrets of an installation, in one file that only its owner reads; what servers get are verifiers made from them.

Passwords are 192 random bits, so the verifiers need not be slow to guess against: bcrypt at its lowest cost, because a
server checks one at each connection and a thousand nodes may come back at once.
"""

import base64
import hmac
import os
import secrets
from hashlib import pbkdf2_hmac, sha256
from pathlib import Path

import msgspec

from shared.errors import KoordError
from shared.file_replacement import replace_file

FILE = "credentials.json"
OWNER = "owner"
_SCRAM_ROUNDS = 4096
_BCRYPT_COST = 4


class Secret(msgspec.Struct, frozen=True):
    """One login's secrets, and what servers know it by.

    Attributes:
        bcrypt: of the password, for NATS.
        scram: of the password, for Postgres.
        seed, public: an NKEY of kind user.
    """

    password: str
    bcrypt: str
    scram: str
    seed: str
    public: str


class Book(msgspec.Struct):
    """Secrets and options of an installation.

    Attributes:
        nats, mqtt, postgres: where clients reach the servers: `host:port`, the last with `/database`.
        mount: the folder in which a service finds its NKEY and the authority; empty for the files of this folder
            themselves.
        services: the services that have logins.
        without: the services that got none at the last `init`, and get none at the next one.
        nodes: tokens of the nodes that have logins.
        secrets: login -> its secrets.
    """

    nats: str = ""
    mqtt: str = ""
    postgres: str = ""
    mount: str = ""
    shards: int = 1
    services: list[str] = []
    without: list[str] = []
    nodes: list[str] = []
    secrets: dict[str, Secret] = {}

    def secret(self, login: str) -> Secret:
        """A login's secrets, made at the first mention."""
        if login not in self.secrets:
            self.secrets[login] = new_secret()
        return self.secrets[login]

    def rotate(self, login: str) -> None:
        """Gives a login new secrets."""
        self.secrets[login] = new_secret()


class NoBook(KoordError):
    """There are no credentials in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"there is no {FILE} in {folder}; `koord credentials init {folder}` makes one")


class BadBook(KoordError):
    """The file cannot be read, or is not what was written."""


def read(folder: Path) -> Book:
    """The book of a folder.

    Raises:
        NoBook: there is none.
        BadBook: it is damaged, or cannot be read.
    """
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Book)
    except FileNotFoundError:
        raise NoBook(folder) from None
    except OSError as error:
        remedy = "name another folder, or correct its rights"
        raise BadBook(f"{folder / FILE} cannot be read ({error.strerror}); {remedy}") from error
    except msgspec.DecodeError as error:
        raise BadBook(f"{folder / FILE} is damaged ({error}); put back a copy of it") from error


def write(folder: Path, book: Book) -> None:
    """Keeps the book; readable by nobody else at any moment."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / FILE, msgspec.json.format(msgspec.json.encode(book), indent=1).decode())


def write_private(path: Path, text: str) -> None:
    """Replaces a file by one with mode 0600, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), mode=0o600)


def new_secret() -> Secret:
    """New secrets of one login."""
    import bcrypt
    import nkeys

    password = secrets.token_urlsafe(24)
    seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(bytearray(seed)).public_key
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(_BCRYPT_COST, b"2a"))
    return Secret(password, hashed.decode(), scram_verifier(password), seed.decode(), public.decode())


def scram_verifier(password: str) -> str:
    """Returns Postgres's verifier of a password (RFC 5802, RFC 7677), which does not reveal the password."""
    salt = os.urandom(16)
    salted = pbkdf2_hmac("sha256", password.encode(), salt, _SCRAM_ROUNDS)
    stored = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = (base64.b64encode(part).decode() for part in (salt, stored, server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(_SCRAM_ROUNDS, *encoded)
