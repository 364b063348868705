"""Names that a shell completes: objects from the log, services and contexts from the declarations.

A shell waits for this at every press of Tab. So it queries in a thread of its own, waits for `DEADLINE_S` at most, and
whatever goes wrong means no suggestions, without a word.
"""

import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

DEADLINE_S = 1.0
MOST = 100

DEFAULT_NAMESPACE = "default/"
PODS = ("koord.cluster.PodObserved.v1", "koord.log.CarriedForward.v1")
"""Types of pod events in the log; a carried-forward event may be of another object, which costs a suggestion
too many.
"""
NODES = ("koord.cluster.NodeObserved.v1",)
QUOTAS = ("koord.quota.QuotaDeclared.v1", "koord.log.CarriedForward.v1")

Query = Callable[[str], Coroutine[Any, Any, Iterable[str]]]


def pods(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Pods of the log, by `namespace/name`; a name without a namespace is one in `default`."""
    own = [] if "/" in incomplete or not incomplete else [f"{DEFAULT_NAMESPACE}{incomplete}"]
    found = _queried(ctx, lambda postgres: _keys(postgres, [*own, incomplete], "cluster", PODS))
    short = [name.removeprefix(DEFAULT_NAMESPACE) for name in found if own and name.startswith(own[0])]
    return _items([*short, *(name for name in found if name.startswith(incomplete))])


def keys(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys of events, in the context that was chosen or in all."""
    return _items(_queried(ctx, lambda postgres: _keys(postgres, [incomplete], ctx.params.get("context"), ())))


def contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Contexts of this release; needs no database."""
    try:
        from cli.service_list import contexts as declared

        names = list(declared())
    except Exception:  # noqa: BLE001  such as a bad KOORD_METRICS_SHARDS: not for a shell to say
        return []
    return _items(name for name in names if name.startswith(incomplete))


def system_contexts(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Named systems; needs no database."""
    try:
        from cli.system_contexts.contexts_file import read_contexts

        names = sorted(read_contexts().contexts)
    except Exception:  # noqa: BLE001  such as a file that cannot be read: not for a shell to say
        return []
    return _items(name for name in names if name.startswith(incomplete))


def event_types(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Event types by the end of their names; needs no database."""
    from shared.events import EVENT_TYPES

    short = (name.rpartition(".v")[0].rpartition(".")[2] for name in EVENT_TYPES)
    return _items(name for name in sorted(set(short)) if name.startswith(incomplete))


def followers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Services that are registered as followers."""
    return _items(name for name in _queried(ctx, _followers) if name.startswith(incomplete))


def nodes(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Nodes of the log."""
    return _items(_queried(ctx, lambda postgres: _keys(postgres, [incomplete], "cluster", NODES)))


def devices(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Devices that device discovery recorded, `NODE/TYPE/MINOR`."""
    return _items(name for name in _queried(ctx, lambda postgres: _devices(postgres, incomplete)) if "/" in name)


def quotas(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Quotas that the ledger follows."""
    return _items(_queried(ctx, lambda postgres: _keys(postgres, [incomplete], "quota", QUOTAS)))


def _items(names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names)]


def _queried(ctx: click.Context, query: Query) -> list[str]:
    """Returns the database's response within the deadline; nothing without one."""
    found: list[str] = []

    def work() -> None:
        import asyncio
        import logging

        logging.disable()
        try:
            from cli.supervisor.system_folder import find_endpoints
            from cli.system_contexts.chosen_system import chosen_system

            with chosen_system(ctx.params.get("folder"), ctx.params.get("system_context")) as folder:
                postgres = find_endpoints(Path(folder)).postgres
            found.extend(asyncio.run(query(postgres)))
        except BaseException:  # noqa: BLE001  a shell's prompt is no place for an error
            return

    thread = threading.Thread(target=work, daemon=True)  # one that hangs ends with this process
    thread.start()
    thread.join(DEADLINE_S)
    return list(found)


async def _keys(postgres: str, prefixes: Sequence[str], context: str | None, kinds: Sequence[str]) -> list[str]:
    from shared.log.admin.key_completion import keys_like
    from shared.log.admin.session import opened
    from shared.log.reader import LogReader

    async with opened(postgres) as database:
        names = [context] if context else await LogReader(database).contexts()
        found = [await keys_like(database, name, prefix, MOST, kinds) for name in names for prefix in prefixes]
    return sorted({key for keys in found for key in keys})[:MOST]


async def _devices(postgres: str, prefix: str) -> list[str]:
    from shared.log.admin.key_completion import device_keys
    from shared.log.admin.session import opened
    from shared.log.reader import LogReader

    async with opened(postgres) as database:
        return sorted({*await device_keys(LogReader(database), prefix, MOST)})[:MOST]


async def _followers(postgres: str) -> list[str]:
    from shared.log.admin.followers import list_followers
    from shared.log.admin.session import opened

    async with opened(postgres) as database:
        return [one.service for one in await list_followers(database)]
