"""The bus' part of nats-server's configuration: users with their permissions, and a whole one for a server with TLS."""

import json
from collections.abc import Iterable, Iterator, Mapping

from cli.credentials.book import Secret
from cli.credentials.rights import BusRights, Login

ANSWER_WITHIN = "2m"
"""How long after a question its answer is let through."""

HEAD = "# Made by `koord credentials` from the services' declarations; made again by each run of it. Reload: kill -HUP of nats-server.\n"

SERVER = """\
{head}listen: "0.0.0.0:{port}"
max_payload: 1048576
tls {{ cert_file: "{folder}/tls/server.crt", key_file: "{folder}/tls/server.key" }}
jetstream {{ store_dir: "{store}" }}
mqtt {{
  listen: "0.0.0.0:{mqtt_port}"
  tls {{ cert_file: "{folder}/tls/server.crt", key_file: "{folder}/tls/server.key" }}
}}
{health}include "users.conf"
"""


def users(logins: Iterable[Login], secrets: Mapping[str, Secret], *, nkeys: bool) -> str:
    """The block `authorization`.

    Args:
        nkeys: a login proves itself with its NKEY; by MQTT, and a node in any case, with its password.
    """
    blocks = [block for login in logins for block in _blocks(login, secrets[login.name], nkeys=nkeys)]
    return f"{HEAD}authorization {{\n  timeout: 5\n  users: [\n{''.join(blocks)}  ]\n}}\n"


def server(folder: str, store: str, *, port: int = 4222, mqtt_port: int = 8883, health_port: int = 0) -> str:
    """A whole configuration.

    Args:
        folder: where the server finds it, with certificates and users beside it: paths in it are relative to where the server was started.
        store: where it keeps streams.
        health_port: on loopback, for /healthz; none when 0.
    """
    health = f'http: "127.0.0.1:{health_port}"\n' if health_port else ""
    return SERVER.format(head=HEAD, folder=folder, store=store, port=port, mqtt_port=mqtt_port, health=health)


def _blocks(login: Login, secret: Secret, *, nkeys: bool) -> Iterator[str]:
    rights = login.bus
    by_key = nkeys and login.log is not None
    by_password = f"user: {json.dumps(rights.user)}, password: {json.dumps(secret.bcrypt)}"
    kinds = (*(() if by_key else ("STANDARD",)), *(("MQTT",) if rights.mqtt else ()))
    if by_key:
        yield _block(rights, f"nkey: {secret.public}", ("STANDARD",))
    if kinds:
        yield _block(rights, by_password, kinds)


def _block(rights: BusRights, proof: str, kinds: tuple[str, ...]) -> str:
    responses = f'\n      allow_responses: {{ max: 1, expires: "{ANSWER_WITHIN}" }}' if rights.responds else ""
    return (
        f"    # {rights.user}\n"
        f"    {{ {proof}, allowed_connection_types: {json.dumps(kinds)}, permissions: {{\n"
        f"      publish: {{ allow: {_listed(rights.publish)} }}\n"
        f"      subscribe: {{ allow: {_listed(rights.subscribe)} }}{responses}\n"
        "    } }\n"
    )


def _listed(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(subject) for subject in subjects) + "]"
