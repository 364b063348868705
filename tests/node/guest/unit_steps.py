"""Starts the unit of the runtime proxy in a guest whose process 1 is systemd, before a real containerd.

Run in the guest alone, by tests/node/test_guest_units.py: `python -m tests.node.guest.unit_steps UNIT`.
"""

import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import grpc

PROXY = "unix:///var/run/koord-runtimeproxy/runtimeproxy.sock"
VERSION = "/runtime.v1.RuntimeService/Version"
INSTALLED, PYTHON, CHECKOUT = Path("/opt/koordstream"), Path("/opt/python"), Path("/opt/checkout")


def run(*argv: str | Path) -> str:
    """Runs a program; returns what it printed.

    Raises:
        CalledProcessError: it ended with another status than 0.
    """
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def install() -> None:
    """Installs Koordstream where the unit expects it: a unit with ProtectHome sees neither /root nor /home."""
    for source, target in ((Path(sys.base_prefix), PYTHON), (Path.cwd(), CHECKOUT)):
        target.mkdir(parents=True)
        run("mount", "--bind", source, target)
    run(PYTHON / "bin" / "python3", "-m", "venv", "--without-pip", INSTALLED)
    packages = next(CHECKOUT.glob(".venv/lib/python3*/site-packages"))
    path = next(INSTALLED.glob("lib/python3*/site-packages")) / "koordstream.pth"
    path.write_text(f"{CHECKOUT}\nimport site; site.addsitedir('{packages}')\n")
    entry = (CHECKOUT / ".venv" / "bin" / "koord").read_text().split("\n", 1)[1]
    program = INSTALLED / "bin" / "koord"
    program.write_text(f"#!{INSTALLED}/bin/python\n{entry}")
    program.chmod(0o755)


def answer() -> bytes:
    """Waits until the proxy passes a call of Version to containerd; returns its answer."""
    while True:
        with grpc.insecure_channel(PROXY) as channel:
            try:
                found: bytes = channel.unary_unary(VERSION)(b"", timeout=60)
            except grpc.RpcError as error:
                print(f"koord-guest: waits for the proxy: {error.code()}", flush=True)
                time.sleep(1)
                continue
        return found


def shown(unit: str, *names: str) -> dict[str, str]:
    """Returns properties of a unit."""
    return dict(line.split("=", 1) for line in run("systemctl", "show", unit, "-p", ",".join(names)).splitlines())


def check(unit: str) -> None:
    install()
    run("systemctl", "start", unit)
    assert b"containerd" in answer()
    began = shown(unit, "MainPID", "ActiveState", "NRestarts", "UnitFileState")
    # On a slow machine the proxy may have given containerd up, and have been started again, before both were ready.
    pid, restarts = began.pop("MainPID"), int(began.pop("NRestarts"))
    assert began == {"ActiveState": "active", "UnitFileState": "disabled"}, began
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert status["NoNewPrivs"] == "1"
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "-999"
    assert "1048576" in next(
        line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line
    )
    print(f"koord-guest: started with process {pid} after {restarts} restarts", flush=True)

    os.kill(int(pid), 9)
    assert b"containerd" in answer()
    again = shown(unit, "MainPID", "ActiveState", "NRestarts")
    assert again.pop("MainPID") not in {pid, "0"}
    assert int(again.pop("NRestarts")) > restarts
    assert again == {"ActiveState": "active"}, again
    print("koord-guest: started again after a kill", flush=True)

    run("systemctl", "enable", unit)
    assert shown(unit, "UnitFileState") == {"UnitFileState": "enabled"}
    run("systemctl", "stop", unit)
    ended = shown(unit, "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
    assert ended == {"ActiveState": "inactive", "Result": "success", "ExecMainCode": "1", "ExecMainStatus": "0"}, ended
    print("koord-guest: stopped by itself with status 0", flush=True)


def main() -> None:
    unit, status = sys.argv[1], 1
    try:
        check(unit)
        status = 0
    finally:
        if status != 0:
            traceback.print_exc(file=sys.stdout)
            subprocess.run(["journalctl", "--no-pager", "-b", "-u", unit, "-u", "containerd"], check=False)
        print(f"koord-guest: exited {status}", flush=True)
        subprocess.run(["systemctl", "poweroff", "--force", "--force"], check=False)


if __name__ == "__main__":
    main()
