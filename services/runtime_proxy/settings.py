"""Options of the proxy: upstream's flags, and settings from the environment. Source: spec/node-agent.md 5.1."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta

from shared.errors import KoordError
from shared.runtime_hooks.registration import MAX_SOCKET_PATH
from shared.settings import Settings

NAME = "runtime-proxy"
CONTAINERD, DOCKER = "Containerd", "Docker"


class RuntimeProxySettings(Settings, frozen=True, kw_only=True):
    """KOORD_RUNTIME_PROXY_<FIELD> in the environment, beyond upstream's flags."""

    registrations: Annotated[str, Meta(description="folder of the files by which hook servers register")] = (
        "/etc/runtime/hookserver.d"
    )
    hook_within_s: Annotated[
        float, Meta(gt=0, le=60, description="seconds that a hook server has for an answer; then its policy applies")
    ] = 2.0
    log_level: Annotated[str, Meta(description="debug, info, warning or error; JSON lines on stderr")] = "info"


class ProxyOptions(NamedTuple):
    """Flags in force: paths of sockets, the label of pods without hooks, and whether the runtime is Docker."""

    endpoint: str = "/var/run/koord-runtimeproxy/runtimeproxy.sock"
    runtime_endpoint: str = "/var/run/containerd/containerd.sock"
    skipped_key: str = "runtimeproxy.koordinator.sh/skip-hookserver"
    skipped_value: str = "true"
    docker: bool = False


class BadProxyOption(KoordError):
    """A flag that is invalid; the text names it."""


def options_of(flags: Mapping[str, str]) -> ProxyOptions:
    """Returns the options of flags.

    Args:
        flags: those that were given, without dashes.

    Raises:
        BadProxyOption: one is invalid.
    """
    default = ProxyOptions()
    mode = flags.get("backend-runtime-mode", CONTAINERD)
    if mode not in (CONTAINERD, DOCKER):
        raise BadProxyOption(f"--backend-runtime-mode is {mode!r}; give {CONTAINERD} or {DOCKER}")
    endpoint = _socket("koord-runtimeproxy-endpoint", flags, default.endpoint)
    runtime = _socket("remote-runtime-service-endpoint", flags, default.runtime_endpoint)
    if endpoint == runtime:
        raise BadProxyOption(f"--koord-runtimeproxy-endpoint and --remote-runtime-service-endpoint are both {endpoint}")
    return ProxyOptions(
        endpoint,
        runtime,
        flags.get("runtime-hook-server-key", default.skipped_key),
        flags.get("runtime-hook-server-val", default.skipped_value),
        mode == DOCKER,
    )


def _socket(flag: str, flags: Mapping[str, str], default: str) -> str:
    path = flags.get(flag, default).removeprefix("unix://")
    if not path.startswith("/") or len(path.encode()) > MAX_SOCKET_PATH:
        raise BadProxyOption(
            f"--{flag} is {path!r}; give the absolute path of a unix socket, of at most {MAX_SOCKET_PATH} bytes"
        )
    return path
