"""Check of a folder of credentials: agreement with this release's manifests, file modes, expiry."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cli.credentials import secrets_file as books
from cli.credentials.pki import RENEW_BEFORE, ends_at
from cli.credentials.tls_files import PUBLIC, files, logins_of

CERTIFICATES = ("ca.crt", "nats/tls/server.crt", "postgres/tls/server.crt")
SECRET = ("credentials.json", "ca.key", "nats/tls/server.key", "postgres/tls/server.key")


class Fault(NamedTuple):
    """One thing that is not as it should be: which file, what is wrong, and what to do."""

    file: str
    what: str
    advice: str


def check(folder: Path, now: datetime | None = None) -> list[Fault]:
    """Checks every file of a folder.

    Raises:
        NoBook: there is none.
        KoordError: a service's library is not installed: its rights cannot be known.
    """
    book = books.read(folder)
    logins = logins_of(book)
    again = f"`koord credentials init {folder}` makes it anew"
    missing = [login.name for login in logins if login.name not in book.secrets]
    if missing:
        return [Fault(books.FILE, f"has no login for {', '.join(missing)}", again)]
    faults = [Fault(name, "is missing", again) for name in (*SECRET, *CERTIFICATES) if not (folder / name).exists()]
    if faults:
        return faults
    for name, text in files(folder, book, logins, (folder / "ca.crt").read_text()).items():
        path = folder / name
        if not path.exists():
            faults.append(Fault(name, "is missing", again))
        elif path.read_text() != text:
            faults.append(
                Fault(name, "differs from the manifests of this release", f"{again}; then reload the servers")
            )
    secret = [
        *(folder / name for name in SECRET),
        *folder.glob("env/*.env"),
        *folder.glob("nodes/*.env"),
        *folder.glob("logins/*/nkey"),
    ]
    for path in secret:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & (PUBLIC & 0o077 | 0o033):
            faults.append(
                Fault(str(path.relative_to(folder)), f"has mode {mode:04o}: others can read it", f"chmod 600 {path}")
            )
    faults += _certificates(folder, now or datetime.now(UTC))
    return faults


def _certificates(folder: Path, now: datetime) -> list[Fault]:
    faults = []
    for name in CERTIFICATES:
        left = ends_at(folder / name) - now
        if left < RENEW_BEFORE:
            what = "has expired" if left <= timedelta() else f"ends in {left.days} days"
            faults.append(Fault(name, what, f"`koord credentials init {folder}` renews it; then reload the servers"))
    return faults
