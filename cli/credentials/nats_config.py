"""The bus' part of nats-server's configuration: users with their permissions, and a whole one for a server with TLS."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cli.credentials.permissions import CORE, FIELD, STREAMS, BusRights, Login
from cli.credentials.secrets_file import Secret

ANSWER_WITHIN = "2m"
"""How long after a question its answer is let through."""

NEWLINE = "\n"
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
    """The block `accounts`, with the users of each.

    Args:
        nkeys: a login proves itself with its NKEY; by MQTT, and a node in any case, with its password.
    """
    known = list(logins)
    parts = [HEAD, "accounts {\n"]
    for account in (CORE, FIELD, STREAMS):
        blocks = [
            block
            for login in known
            if login.bus.account == account
            for block in _blocks(login, secrets[login.name], nkeys=nkeys)
        ]
        parts += [
            f"  {account}: {{\n",
            "" if account == CORE else "    jetstream: enabled\n",
            *_crossings(account, [login.bus for login in known]),
            f"    users: [\n{''.join(blocks)}    ]\n  }}\n",
        ]
    return "".join([*parts, "}\nauthorization { timeout: 5 }\n"])


def _crossings(account: str, known: Sequence[BusRights]) -> Iterator[str]:
    """Traffic between accounts: announcements to followers, requests to their responders, and nothing else."""
    inside = [one for one in known if one.account == account]
    outside = [one for one in known if one.account != account]
    exports = [f"stream: {json.dumps(subject)}" for subject in _announced(inside, outside)]
    exports += [f"service: {json.dumps(subject)}" for subject in _requested(outside, inside)]
    imports = [
        f"stream: {{ account: {other}, subject: {json.dumps(subject)} }}"
        for other, subject in _from_each(outside, lambda theirs: _announced(theirs, inside))
    ]
    imports += [
        f"service: {{ account: {other}, subject: {json.dumps(subject)} }}"
        for other, subject in _from_each(outside, lambda theirs: _requested(inside, theirs))
    ]
    for name, entries in (("exports", exports), ("imports", imports)):
        yield f"    {name}: [\n{''.join(f'      {{ {entry} }}{NEWLINE}' for entry in entries)}    ]\n"


def _from_each(
    outside: Sequence[BusRights], found: Callable[[list[BusRights]], list[str]]
) -> Iterator[tuple[str, str]]:
    for other in sorted({one.account for one in outside}):
        for subject in found([one for one in outside if one.account == other]):
            yield other, subject


def _announced(by: Sequence[BusRights], to: Sequence[BusRights]) -> list[str]:
    """Subjects that the ones publish and the others subscribe to, without requests."""
    subscribed = {subject for one in to for subject in one.subscribe if subject not in one.serves}
    return sorted({subject for one in by for subject in one.publish if subject in subscribed})


def _requested(by: Sequence[BusRights], of: Sequence[BusRights]) -> list[str]:
    """Subjects of questions by the ones that the others answer."""
    answered = {subject for one in of for subject in one.serves}
    return sorted({subject for one in by for subject in one.publish if subject in answered})


def server(folder: str, store: str, *, port: int = 4222, mqtt_port: int = 8883, health_port: int = 0) -> str:
    """A whole configuration.

    Args:
        folder: where the server finds it, with certificates and users beside it: paths in it are relative to where the
            server was started.
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
        f"      # {rights.user}\n"
        f"      {{ {proof}, allowed_connection_types: {json.dumps(kinds)}, permissions: {{\n"
        f"        publish: {{ allow: {_listed(rights.publish)} }}\n"
        f"        subscribe: {{ allow: {_listed(rights.subscribe)} }}{responses}\n"
        "      } }\n"
    )


def _listed(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(subject) for subject in subjects) + "]"
