"""`koord run device-daemon`: Koordinator's koord-device-daemon, with its flags."""

import os

import click

_BOOLEAN = "[true|false]"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A flag takes precedence over the environment, and that over the file.",
)
@click.option(
    "--oneshot",
    metavar=_BOOLEAN,
    is_flag=False,
    flag_value="true",
    help="List once and end; the file stays.  [env: KDD_ONESHOT]",
)
@click.option(
    "--no-timestamp",
    metavar=_BOOLEAN,
    is_flag=False,
    flag_value="true",
    help="Accepted for compatibility, without effect.  [env: KDD_NO_TIMESTAMP]",
)
@click.option(
    "--sleep-interval",
    metavar="DURATION",
    help="Time between two lists, such as 900s or 1h30m.  [env: KDD_SLEEP_INTERVAL; default: 900s]",
)
@click.option(
    "--prints-output-file",
    metavar="FILE",
    help="File for the list; empty: none.  [env: KDD_PRINTS_OUTPUT_FILE, PRINTS_OUTPUT_FILE; default: "
    "/var/run/koordlet/xpu-device-infos/ic-device]",
)
@click.option(
    "--config-file",
    metavar="FILE",
    help="YAML or JSON: version v1, flags.kdd.oneshot, .sleepInterval, .printsOutputFile.  "
    "[env: KDD_CONFIG_FILE, CONFIG_FILE]",
)
@click.option("--v", metavar="LEVEL", help="Accepted for compatibility: KOORD_DEVICE_DAEMON_LOG_LEVEL is what counts.")
def device_daemon(**given: str | None) -> int:
    """List the accelerators of this node in a file, again and again.

    Huawei NPUs, Cambricon MLUs, Kunlun XPUs and MetaX GPUs are found by their PCI ids and queried with the tools of
    their vendors (npu-smi, cnmon, xpu_smi, mx-smi), inside /hostfs where that exists. The node's agent reads the file.
    SIGHUP loads the options again; INT, TERM and QUIT end it, and remove the file.

    \b
    Further settings, from the environment:
      KOORD_DEVICE_DAEMON_SYS_ROOT       sysfs; /host-sys where it exists, else /sys
      KOORD_DEVICE_DAEMON_HOST_ROOT      root of the host, for its tools; /hostfs where it exists
      KOORD_DEVICE_DAEMON_DEV_ROOT       device files of the host (/dev)
      KOORD_DEVICE_DAEMON_TOOL_WITHIN_S  seconds until a tool is killed (30)
      KOORD_DEVICE_DAEMON_LOG_LEVEL      debug, info, warning or error (info)
    """
    from services.node_agent.device_daemon.service import run
    from shared.errors import KoordError

    flags = {name.replace("_", "-"): text for name, text in given.items() if text is not None and name != "v"}
    try:
        return run(flags, os.environ)
    except KoordError as error:
        raise click.ClickException(str(error)) from error
