"""Completion of names: Tab in a real shell, on a real log."""

import asyncio
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats
from shared.events.cluster import NodeObserved, PodObserved
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.pod import Pod
from tests.integration.cli.installation import Installation
from tests.support.terminal import take_terminal

SCRIPTS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--interactive"],
}
SOURCES = {
    "bash": "source <(koord completion bash)",
    "zsh": "autoload -Uz compinit && compinit -D && source <(koord completion zsh)",
    "fish": "koord completion fish | source",
}
_ESCAPES = re.compile(r"\x1b(\[[0-9;?>=]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")


@pytest.fixture
async def installation(database: str, nats: EmbeddedNats, tmp_path: Path) -> AsyncIterator[Installation]:
    async with AsyncExitStack() as open_:
        made = Installation(database, nats.url, tmp_path, open_)
        await made.leads("cluster", actor="simulator@1")
        names = ("shop/web-1", "shop/web-2", "default/batch-1")
        pods = [Pod(metadata=Metadata(name=name.partition("/")[2], namespace=name.partition("/")[0])) for name in names]
        await made.append("cluster", NodeObserved(node="shop-node", object=Node(metadata=Metadata(name="shop-node"))))
        await made.append(
            "cluster", *(PodObserved(pod=name, pod_uid=name, object=pod) for name, pod in zip(names, pods, strict=True))
        )
        await made.follows("scheduler", {"cluster": 1})
        yield made


def offered(words: str, postgres: str) -> tuple[list[str], str, float]:
    """Returns the command's response to a shell: names, its stderr, and the time it took."""
    count = len(words.split()) - (0 if words.endswith(" ") else 1)
    requested = {"_KOORD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    env = {**os.environ, **requested, "KOORD_POSTGRES": postgres, "KOORD_NATS": "nats://127.0.0.1:1"}
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "cli"], env=env, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - started
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line], done.stderr, took_s


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("koord why pod shop/", ["shop/web-1", "shop/web-2"]),
        ("koord why pod ba", ["batch-1"]),
        ("koord why pod ", ["default/batch-1", "shop/web-1", "shop/web-2"]),
        ("koord events --log cluster --key shop", ["shop-node", "shop/web-1", "shop/web-2"]),
        ("koord events --log sch", ["scheduling"]),
        ("koord events --type PodB", ["PodBound", "PodBurst"]),
        ("koord get config me", ["metrics-0"]),
        ("koord followers forget ", ["scheduler"]),
        ("koord run sch", ["scheduler"]),
    ],
)
async def test_names_come_from_the_log_and_the_manifests(
    installation: Installation, words: str, names: list[str]
) -> None:
    found, reported, _ = await asyncio.to_thread(offered, words, installation.endpoints.postgres)
    assert (found, reported) == (names, "")


def test_a_server_that_is_away_rejects_or_hangs_costs_a_second_and_prints_nothing() -> None:
    import socket

    with socket.socket() as hung:  # accepts connections and sends nothing
        hung.bind(("127.0.0.1", 0))
        hung.listen()
        for postgres in (
            f"postgresql://koord@127.0.0.1:{hung.getsockname()[1]}/koord",
            "postgresql://koord@127.0.0.1:1/koord",
            "nonsense",
        ):
            found, reported, _ = offered("koord why pod shop/", postgres)  # a hung server would hold it for good
            assert (found, reported) == ([], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_tab_in_a_real_shell_completes_a_pod(installation: Installation, tmp_path: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} on this machine")
    here = tmp_path / "bin"
    here.mkdir()
    (here / "koord").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cli "$@"\n')
    (here / "koord").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{here}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "KOORD_POSTGRES": installation.endpoints.postgres,
        "KOORD_NATS": "nats://127.0.0.1:1",
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "TERM": "dumb" if shell != "fish" else "xterm",
        "PS1": "ready> ",
    }
    screen = await asyncio.to_thread(typed, shell, env, tmp_path)
    assert "koord why pod default/batch-1" in screen.replace("\r", "").replace("\n", "")


def typed(shell: str, env: dict[str, str], folder: Path) -> str:
    """Returns the screen once the shell has completed `koord why pod default/`; Tab is pressed again until it has."""
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        SCRIPTS[shell],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=env,
        cwd=folder,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509  the child does one system call and then is another program
    )
    os.close(terminal)
    seen = ""

    def read_for(seconds: float) -> None:
        nonlocal seen
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if select.select([keyboard], [], [], 0.1)[0]:
                data = os.read(keyboard, 65_536).decode(errors="replace")
                if "\x1b[c" in data:
                    os.write(
                        keyboard, b"\x1b[?1;2c"
                    )  # fish queries the type of the terminal, and waits for the response
                if "\x1b[6n" in data:
                    os.write(keyboard, b"\x1b[1;1R")
                seen += _ESCAPES.sub("", data)

    try:
        read_for(2)
        os.write(keyboard, f"{SOURCES[shell]}; echo source''d\n".encode())
        deadline = time.monotonic() + 60
        while "sourced" not in seen and time.monotonic() < deadline:
            read_for(0.5)
        assert "sourced" in seen, seen
        os.write(keyboard, b"koord why pod default/")
        while "default/batch-1" not in seen and time.monotonic() < deadline:
            os.write(keyboard, b"\t")
            read_for(3)
        return seen
    finally:
        process.kill()
        process.wait()
        os.close(keyboard)
