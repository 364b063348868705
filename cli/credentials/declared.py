"""The logins that the services' declarations give, read in a process of its own.

A declaration is imported with all that its service needs, such as NumPy and a Kubernetes client: `koord up` would carry that for as
long as it runs, and wait for it at its start.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

import cli
from cli.credentials.rights import Login, logins
from shared.errors import KoordError

log = logging.getLogger(__name__)


async def declared_logins(services: Sequence[str], shards: int) -> list[Login]:
    """The logins of these services, of operator and auditor; a service that cannot be imported here has none.

    Raises:
        KoordError: the declarations cannot be read.
    """
    root = str(Path(cli.__file__).parents[1])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "cli.credentials.declared", str(shards), *services,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, said = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        raise
    if child.returncode:
        raise KoordError(f"the services' declarations cannot be read: {said.decode(errors='replace').strip()[-2000:]}")
    for line in said.decode(errors="replace").splitlines():
        log.warning(line)
    return msgspec.json.decode(output, type=list[Login])


def load_logins(services: Sequence[str], shards: int, *, missing: list[str] | None = None) -> list[Login]:
    """The same in this process.

    Args:
        missing: takes the reasons for which a service is left out.

    Raises:
        KoordError: a service's library is not installed, and `missing` is not given.
    """
    from cli.services import load

    found = []
    for name in services:
        try:
            found.append(load(name))
        except Exception as error:
            if missing is None:
                raise
            missing.append(f"{name} cannot run here and has no login: {error}")
    return logins(found, shards)


def _main(shards: str, *services: str) -> None:
    missing: list[str] = []
    found = load_logins(services, int(shards), missing=missing)
    sys.stderr.write("".join(f"{reason}\n" for reason in missing))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    _main(*sys.argv[1:])
