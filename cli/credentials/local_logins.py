"""Logins of servers that this process runs itself: kept in a folder over restarts, handed to the servers, and to each
service its own.
"""

from collections.abc import Sequence
from pathlib import Path

from cli.credentials import credentials_folder as folders
from cli.credentials import postgres_roles
from cli.credentials import secrets_file as books
from cli.credentials.credentials_folder import Reach
from cli.credentials.permissions import Login, declared_logins
from cli.credentials.secrets_file import Book, NoBook
from cli.service_list import SERVICES
from shared.log.admin.run_sql import run_script
from shared.log.admin.session import opened


class Access:
    """The logins in one folder.

    Attributes:
        folder: as `koord credentials init` makes it, less what loopback does not need.
    """

    def __init__(self, folder: Path, shards: int, nodes: Sequence[str] = ()) -> None:
        self.folder = folder
        self._shards = shards
        self._nodes = nodes
        self._declared = declared_logins(SERVICES, shards)
        self._book = Book()
        self._written_ns = 0

    def load(self) -> None:
        """Reads the book, and makes what secrets are missing.

        Raises:
            KoordError: the book cannot be read.
        """
        try:
            self._book = books.read(self.folder)
        except NoBook:
            self._book = Book()
        self._book.shards = self._shards
        self._book.services = list(SERVICES)
        for node in self._nodes:
            folders.add_node(self._book, node)
        for login in self._logins:
            self._book.secret(login.name)
        books.write(self.folder, self._book)
        self._written_ns = self._at_ns()

    def changed(self) -> bool:
        """Reloads the secrets file if another process has changed it since. Returns whether it had."""
        if self._at_ns() == self._written_ns:
            return False
        self.load()
        return True

    def users(self) -> str:
        """The bus' users."""
        return folders.users_conf(self._book, self._logins, nkeys=False)

    async def make_roles(self, owner: str) -> None:
        """Makes the roles of a server, with their passwords; `owner` is a superuser's URL."""
        secrets = {login.name: self._book.secret(login.name) for login in self._logins}
        async with opened(owner) as database:
            await run_script(database, postgres_roles.roles(self._logins, secrets))

    def write(self, reach: Reach, owner: str = "") -> None:
        """Puts into the folder what each login's process needs, and for `koord migrate` the owner's URL, where it is
        known.
        """
        folders.write_environments(self.folder, self._logins, self._book, reach)
        if owner:
            folders.write_owner(self.folder, owner)

    @property
    def _logins(self) -> list[Login]:
        return folders.with_nodes(self._declared, self._book)

    def _at_ns(self) -> int:
        return (self.folder / books.FILE).stat().st_mtime_ns
