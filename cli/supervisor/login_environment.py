"""The variables by which a process connects to the servers: its own login, never another's, and never the owner's."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from cli.service_list import AGENTS
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_servers import CREDENTIALS
from shared.errors import KoordError

NAMES = frozenset(
    {
        "KOORD_POSTGRES",
        "KOORD_NATS",
        "KOORD_NATS_NKEY",
        "KOORD_NATS_CA",
        "KOORD_MQTT",
        "PGSSLROOTCERT",
        "PGPASSWORD",
        "PGPASSFILE",
        CREDENTIALS,
    }
)
"""Variables that a process does not inherit where each has a login of its own."""


def variables(
    endpoints: Endpoints, service: str, inherited: Mapping[str, str], own: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a service's process.

    Args:
        inherited: of this process.
        own: of this service alone; may name its shard or its node.

    Raises:
        KoordError: it has no login.
    """
    if not endpoints.credentials:
        where = {"KOORD_POSTGRES": endpoints.postgres, "KOORD_NATS": endpoints.nats, "KOORD_MQTT": endpoints.mqtt}
        return {**inherited, **where, **own}
    from cli.credentials.credentials_folder import read_env

    found = read_env(_file(Path(endpoints.credentials), service, {**inherited, **own}))
    if "KOORD_POSTGRES" in found:
        found["KOORD_POSTGRES"] = _at(found["KOORD_POSTGRES"], endpoints.postgres)
    return {**{name: value for name, value in inherited.items() if name not in NAMES}, **found, **own}


def node_of(own: Mapping[str, str], inherited: Mapping[str, str]) -> str:
    """Returns the node of an agent's process; empty when it is not set."""
    both = {**inherited, **own}
    return both.get("KOORD_NODE_AGENT_NODE", "") or both.get("NODE_NAME", "")


def _file(folder: Path, service: str, env: Mapping[str, str]) -> Path:
    from cli.credentials.credentials_folder import env_file
    from shared.agents.subjects import token

    if service in AGENTS:
        node = node_of(env, {})
        if not node:
            raise KoordError(f"{service} needs the node's name: set KOORD_NODE_AGENT_NODE")
        return env_file(folder, token(node), node=True)
    whole = env_file(folder, service)
    return whole if whole.exists() else env_file(folder, f"{service}-{env.get('KOORD_SHARD', '0')}")


def _at(url: str, place: str) -> str:
    """A URL's login, at another URL's server and database."""
    ours, theirs = urlsplit(url), urlsplit(place)
    netloc = f"{ours.netloc.rpartition('@')[0]}@{theirs.netloc.rpartition('@')[2]}"
    return ours._replace(netloc=netloc, path=theirs.path).geturl()
