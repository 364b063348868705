"""All files of a folder for servers with TLS, from its book and the declarations: made again as a whole, each time."""

from pathlib import Path

from cli.credentials import credentials_folder as folders
from cli.credentials import nats_config, postgres_roles
from cli.credentials import secrets_file as books
from cli.credentials.credentials_folder import OWNER_ROLE, Reach, env_text
from cli.credentials.permissions import Login, declared_logins
from cli.credentials.secrets_file import OWNER, Book, write_private
from shared.bus.login import url_of

Files = dict[str, str]
"""Path below the folder -> text."""

PRIVATE = 0o600
PUBLIC = 0o644


def logins_of(book: Book) -> list[Login]:
    """The logins of a book."""
    return folders.with_nodes(declared_logins(book.services, book.shards), book)


def install(folder: Path, book: Book, logins: list[Login]) -> list[str]:
    """Writes the folder; the files that changed. Secrets that are missing are made, others stay."""
    from cli.credentials.pki import Authority

    for login in logins:
        book.secret(login.name)
    book.secret(OWNER)
    books.write(folder, book)
    authority = Authority(folder)
    authority.serve(folder / "nats" / "tls", {_host(book.nats), _host(book.mqtt)})
    authority.serve(folder / "postgres" / "tls", {_host(book.postgres)})
    changed = []
    required = files(folder, book, logins, authority.pem)
    for name, text in required.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            changed.append(name)
            write_private(path, text)
        path.chmod(PUBLIC if name.endswith(("ca.crt", "nats.conf", "pg_hba.conf")) else PRIVATE)
    for gone in _left_over(folder, required):
        (folder / gone).unlink()
        changed.append(gone)
    return changed


def files(folder: Path, book: Book, logins: list[Login], authority: str) -> Files:
    """Returns the files of the folder besides the secrets file, the authority and the servers' certificates."""
    reach = Reach(book.postgres, book.nats, book.mqtt, tls=True, files=book.mount or f"{folder.absolute()}/logins/{{}}")
    database = book.postgres.partition("/")[2]
    found = {
        "nats/nats.conf": _server(folder, book),
        "nats/users.conf": nats_config.users(logins, book.secrets, nkeys=True),
        "postgres/roles.sql": postgres_roles.roles(logins, book.secrets),
        "postgres/pg_hba.conf": postgres_roles.hba(database, OWNER_ROLE),
    }
    for login in logins:
        variables = folders.environment(login, book, reach, book.shards)
        place = "nodes" if login.log is None else "env"
        found[f"{place}/{login.name}.env"] = env_text(variables)
        found[f"logins/{login.name}/ca.crt"] = authority
        if login.log is not None:
            found[f"logins/{login.name}/nkey"] = book.secrets[login.name].seed + "\n"
    password = book.secrets[OWNER].password
    owner = {
        "KOORD_POSTGRES": url_of(f"postgresql://{book.postgres}", OWNER_ROLE, password) + "?sslmode=verify-full",
        "PGSSLROOTCERT": f"{reach.files.format(OWNER)}/ca.crt",
        "KOORD_METRICS_SHARDS": str(book.shards),
    }
    image = {"POSTGRES_USER": OWNER_ROLE, "POSTGRES_PASSWORD": password, "POSTGRES_DB": database}
    found |= {
        f"env/{OWNER}.env": env_text(owner),
        f"logins/{OWNER}/ca.crt": authority,
        "env/postgres.env": env_text(image),
    }
    return found


def _server(folder: Path, book: Book) -> str:
    """The bus' configuration: for a container with this folder's `nats` at /etc/nats, or for a server on this machine."""
    if book.mount:
        return nats_config.server("/etc/nats", "/data", health_port=8222)
    here = folder.absolute() / "nats"
    return nats_config.server(str(here), str(here / "data"), port=_port(book.nats), mqtt_port=_port(book.mqtt))


def _left_over(folder: Path, required: Files) -> list[str]:
    """Files of logins that are no more; what else lies there is not ours."""
    ours = (*folder.glob("env/*.env"), *folder.glob("nodes/*.env"), *folder.glob("logins/*/nkey"))
    return [name for path in ours if (name := str(path.relative_to(folder))) not in required]


def _host(place: str) -> str:
    return place.partition("/")[0].rpartition(":")[0].strip("[]")


def _port(place: str) -> int:
    return int(place.partition("/")[0].rpartition(":")[2])
