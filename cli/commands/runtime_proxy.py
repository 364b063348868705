"""`koord run runtime-proxy`: Koordinator's koord-runtime-proxy, with its flags."""

import os

import click


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--koord-runtimeproxy-endpoint",
    metavar="SOCKET",
    help="Socket that the kubelet connects to.  [default: /var/run/koord-runtimeproxy/runtimeproxy.sock]",
)
@click.option(
    "--remote-runtime-service-endpoint",
    metavar="SOCKET",
    help="Socket of the container runtime.  [default: /var/run/containerd/containerd.sock]",
)
@click.option(
    "--backend-runtime-mode",
    metavar="MODE",
    help="Containerd: any runtime with CRI v1. Docker: Docker's HTTP API.  [default: Containerd]",
)
@click.option(
    "--runtime-hook-server-key",
    metavar="LABEL",
    help="Label of pods that no hook is called for.  [default: runtimeproxy.koordinator.sh/skip-hookserver]",
)
@click.option("--runtime-hook-server-val", metavar="VALUE", help="Value of that label.  [default: true]")
def runtime_proxy(**given: str | None) -> int:
    """Call hooks before containers start: a proxy between the kubelet and its container runtime.

    The kubelet's --container-runtime-endpoint names the proxy's socket, or with Docker the --docker-endpoint of
    cri-dockerd or of a kubelet before 1.24. Hook servers, such as the node agent with
    KOORD_NODE_AGENT_HOOK_SERVER=true, register by a file; docs/runtime-proxy.md shows both. INT and TERM end it; the
    kubelet connects again as soon as it runs.

    \b
    Further settings, from the environment:
      KOORD_RUNTIME_PROXY_REGISTRATIONS  folder of the files of hook servers (/etc/runtime/hookserver.d)
      KOORD_RUNTIME_PROXY_HOOK_WITHIN_S  seconds that a hook server has for an answer (2)
      KOORD_RUNTIME_PROXY_LOG_LEVEL      debug, info, warning or error (info)
    """
    from shared.errors import KoordError

    try:
        from services.runtime_proxy.service import run
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] in {"services", "shared"}:
            raise  # ours: a broken installation, not a missing extra
        raise click.ClickException(
            f"runtime-proxy needs {error.name}; pip install 'koordstream[runtime-proxy]'"
        ) from error
    flags = {name.replace("_", "-"): text for name, text in given.items() if text is not None}
    try:
        return run(flags, os.environ)
    except KoordError as error:
        raise click.ClickException(str(error)) from error
