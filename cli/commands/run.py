"""`koord run`: one service as this process."""

import gc
import sys

import click

from cli.commands.device_daemon import device_daemon
from cli.commands.runtime_proxy import runtime_proxy
from cli.service_list import AGENTS, DEVICE_DAEMON, RUNTIME_PROXY, SERVICES, load, settings_of

WITH_FLAGS = {DEVICE_DAEMON: device_daemon, RUNTIME_PROXY: runtime_proxy}
PROGRAMS = (*SERVICES, *AGENTS, *WITH_FLAGS)
_FLAGS = "flags of a program that has its own"


class RunService(click.Command):
    """`koord run SERVICE --help` prints the service's settings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Answer `SERVICE --help` before click answers `--help`; some programs have flags of their own."""
        if args and args[0] in WITH_FLAGS:
            ctx.meta[_FLAGS], args = args[1:], args[:1]
        named = [arg for arg in args if arg in PROGRAMS]
        if named and any(arg in {"--help", "-h"} for arg in args):
            click.echo(_settings_table(named[0]))
            ctx.exit()
        return super().parse_args(ctx, args)


class Program(click.Choice[str]):
    """A program by its name; a misspelt one is answered with the one that is probably meant."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the name."""
        if value not in PROGRAMS:
            from shared.closest_name import did_you_mean  # only here: it takes a tenth of the command's start

            meant = did_you_mean(value, PROGRAMS)
            self.fail(f"there is no service {value!r}{meant}; there are {', '.join(PROGRAMS)}", param, ctx)
        return value


@click.command(cls=RunService, epilog="`koord run SERVICE --help` prints the service's settings.")
@click.argument("service", metavar="SERVICE", type=Program(PROGRAMS))
@click.pass_context
def run(ctx: click.Context, service: str) -> None:
    """Run one service until SIGTERM.

    SERVICE is gateway, scheduler, quota-ledger, slo-controller, descheduler, simulator, metrics-ingest, action-ingest,
    device-discovery, audit, node-agent, device-daemon or runtime-proxy.

    It needs KOORD_POSTGRES and KOORD_NATS; a node's agent needs KOORD_MQTT or KOORD_NATS alone, and device-daemon and
    runtime-proxy, which take flags, neither. With KOORD_HTTP_ADDR=host:port it serves /healthz, /readyz, /metrics and
    /statusz. Logs are JSON on stderr. It ends with 0 after SIGTERM; any other end is an error, and the supervisor
    starts it again.
    """
    if service in WITH_FLAGS:
        sys.exit(WITH_FLAGS[service].main(ctx.meta[_FLAGS], prog_name=f"koord run {service}", standalone_mode=False))
    if service in AGENTS:
        from services.node_agent.service import run as run_agent

        sys.exit(run_agent())
    gc.disable()  # all that is imported stays: collections would look at it again and again
    from shared.runtime.runner import run as run_service

    loaded = load(service)
    gc.freeze()
    gc.enable()
    sys.exit(run_service(loaded))


def _settings_table(name: str) -> str:
    from shared.settings import Settings, table

    parts: tuple[type[Settings], ...]
    if name in AGENTS:
        from services.node_agent.settings import AgentEnvironment

        about = f"{name}: measures the node it runs on and reports to metrics ingest."
        parts = (AgentEnvironment, *settings_of(name))
    else:
        from shared.runtime.service import Environment

        service = load(name)
        about = f"{name}: writes the context {service.writes}, follows {', '.join(sorted(service.follows))}."
        parts = (Environment, *settings_of(name))
    lines = [about, "", "Settings, from the environment:", ""]
    for row in (*table("", parts[0]), *(row for part in parts[1:] for row in table(name, part))):
        lines.append(f"  {row.variable} ({row.type}, {row.default})")
        if row.description:
            lines.append(f"      {row.description}")
    return "\n".join(lines)
