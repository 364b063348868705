"""GPUs through nvidia-ml-py and a compiled library, in the process that the agent starts."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.collectors.gpu_usage import GpuCollector, GpuUsage
from services.node_agent.devices.nvidia_gpus import DRIVER
from services.node_agent.devices.nvidia_watch import Deadlines, NvidiaWatch, nvidia_command
from services.node_agent.devices.pci_bus import PciBus
from shared.agents.device_inventory import DeviceFound
from tests.support import sysfs_trees
from tests.support.sysfs_trees import NVIDIA, VGA
from tests.support.waiting import until
from tests.unit.node_agent.devices import fake_nvml
from tests.unit.node_agent.devices.fake_nvml import GIB

UID = "0f1c22aa-5b0e-4c6c-9a53-000000000001"
QUICK = Deadlines(start_s=30, line_s=0.5, stale_s=0.5, end_s=5, retry_s=0.05)
PATIENT = Deadlines(retry_s=0.05)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


class Machine:
    """A machine with GPUs: its PCI bus, the library's cards and the watch."""

    def __init__(self, library: str, folder: Path, cards: int, deadlines: Deadlines) -> None:
        self.sys, self._state = folder / "sys", folder / "cards"
        for number in range(cards):
            sysfs_trees.pci_function(self.sys, sysfs_trees.gpu_path(number), VGA, NVIDIA, numa=1, driver=DRIVER)
        # Fifty lists of cards a second: a changed file is seen at once.
        command = (*nvidia_command(library, 0.02)[:-1], "0.02")
        self.watch = NvidiaWatch(("env", f"FAKE_NVML={self._state}", *command), PciBus(self.sys), deadlines)

    def set(self, *lines: str) -> None:
        """Replaces what the library finds."""
        beside = self._state.with_suffix(".new")
        beside.write_text("".join(f"{line}\n" for line in lines))
        beside.replace(self._state)

    @property
    def gpus(self) -> tuple[DeviceFound, ...]:
        return self.watch.gpus().devices

    @property
    def reasons(self) -> list[str]:
        """The reason of each card's condition; empty for a healthy one."""
        return [card.conditions[0].reason if card.conditions else "" for card in self.gpus]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def machine(library: str, tmp_path: Path) -> Callable[..., Machine]:
    return lambda cards=2, deadlines=PATIENT: Machine(library, tmp_path, cards, deadlines)


async def test_cards_have_memory_place_model_and_driver(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.set(fake_nvml.gpu(1), fake_nvml.gpu(0, virtualization=1))
    assert not here.watch.settled
    async with here.running():
        await until(lambda: here.watch.settled)
    amounts = {
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 80 * GIB,
        "koordinator.sh/gpu-memory-ratio": 100,
    }
    assert here.gpus[0] == DeviceFound(
        "gpu",
        0,
        health=True,
        id="GPU-0",
        resources=amounts,
        numa=1,
        pcie_root="pci0000:16",
        pcie_switch="0000:17:00.0",
        bus_id="0000:1a:00.0",
        labels={"node.koordinator.sh/gpu-virtualization": "passthrough"},
    )
    assert (here.gpus[1].id, here.gpus[1].labels) == ("GPU-1", {})
    assert here.watch.gpus()[1:] == ("H100 80GB HBM3", "550.54.15", ())


async def test_mig_instances_are_counted_and_mixed_models_have_no_model(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.set(fake_nvml.gpu(0, mig=2), fake_nvml.gpu(1, mig=0, name="NVIDIA A30"))
    async with here.running():
        await until(lambda: here.watch.settled)
    assert [card.labels for card in here.gpus] == [{"node.koordinator.sh/gpu-mig-devices": count} for count in "20"]
    assert [instance.memory for instance in here.watch.cards[0].mig or ()] == [10 * GIB, 10 * GIB]
    assert here.watch.gpus().model == ""


async def test_errors_of_cards_make_them_unhealthy_and_their_end_healthy_again(machine: Callable[..., Machine]) -> None:
    here = machine(4)
    here.set(fake_nvml.gpu(0), fake_nvml.gpu(1, ecc=3), fake_nvml.gpu(2, remap_failed=1), fake_nvml.gpu(3, events=3))
    async with here.running():
        await until(lambda: here.watch.settled)
        assert here.reasons == ["", "EccUncorrectable", "RowRemapFailed", "DeviceHealthCheckNotSupported"]
        here.set(*(fake_nvml.gpu(number) for number in range(4)))
        await until(lambda: here.reasons[:3] == ["", "", ""])


async def test_a_critical_error_stays_and_errors_of_applications_are_ignored(machine: Callable[..., Machine]) -> None:
    here = machine()
    cards = fake_nvml.gpu(0), fake_nvml.gpu(1)
    here.set(*cards, "xid GPU-0 31", "xid GPU-1 79")
    async with here.running():
        await until(lambda: any(here.reasons))
        here.set(*cards, "xid GPU-0 31", "xid GPU-1 79", "xid GPU-1 94")
        await until(lambda: here.reasons == ["", "Xid79"])


async def test_a_lost_card_is_unhealthy_as_long_as_it_is_on_the_bus_and_then_gone(
    machine: Callable[..., Machine],
) -> None:
    here = machine(3)
    here.set(*(fake_nvml.gpu(number) for number in range(3)))
    async with here.running():
        await until(lambda: here.reasons == ["", "", ""])
        here.set(fake_nvml.gpu(0), fake_nvml.gpu(1, error=15))  # 15: lost; the third is no longer listed
        await until(lambda: here.reasons == ["", "GpuLost", "GpuLost"])
        assert [card.id for card in here.gpus] == ["GPU-0", "GPU-1", "GPU-2"]
        sysfs_trees.remove_function(here.sys, sysfs_trees.gpu_address(1), DRIVER)
        assert [card.id for card in here.gpus] == ["GPU-0", "GPU-2"]


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (fake_nvml.gpu(1, memory=0), "GPU GPU-1 is left out: its memory is 0 bytes"),
        (fake_nvml.gpu(1, memory=2**64 - 1), "GPU GPU-1 is left out: its memory is 18446744073709551615 bytes"),
        (fake_nvml.gpu(1, minor=4_000_000_000), "GPU GPU-1 is left out: its minor is 4000000000"),
        (fake_nvml.gpu(1, minor=0), "GPU GPU-1 is left out: minor 0 is GPU-0's"),
        (fake_nvml.gpu(1, error=999), "GPU 0000:1b:00.0 is left out: "),
    ],
)
async def test_absurd_numbers_leave_out_their_card_alone(card: str, why: str, machine: Callable[..., Machine]) -> None:
    here = machine()
    here.set(fake_nvml.gpu(0), card)
    async with here.running():
        await until(lambda: here.watch.settled)
    assert [found.id for found in here.gpus] == ["GPU-0"]
    assert here.watch.gpus().faults[0].startswith(why)


async def test_a_call_that_hangs_makes_all_cards_unhealthy_until_the_library_answers(
    machine: Callable[..., Machine],
) -> None:
    here = machine(deadlines=QUICK)
    cards = fake_nvml.gpu(0), fake_nvml.gpu(1)
    here.set(*cards)
    async with here.running():
        await until(lambda: here.reasons == ["", ""])
        here.set(*cards, "hang")
        await until(lambda: here.reasons == ["NotResponding", "NotResponding"])
        await until(lambda: here.watch.reason == "NVIDIA's library did not answer within 0.5 s")
        here.set(*cards)
        await until(lambda: here.reasons == ["", ""])


async def test_a_library_that_ends_its_process_is_started_again(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.set("crash")
    async with here.running():
        await until(lambda: here.watch.settled)
        assert (here.gpus, here.watch.reason) == ((), "the process that calls NVIDIA's library ended")
        here.set(fake_nvml.gpu(0))
        await until(lambda: len(here.gpus) == 1)


async def test_no_second_process_is_started_beside_one_that_cannot_be_killed(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A process in a call that cannot be interrupted cannot be made without such a driver: signals are withheld instead.
    here = machine(deadlines=Deadlines(start_s=0.5, end_s=0.05, retry_s=0.01))
    here.set(fake_nvml.gpu(0), "hang")
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def start_unkillable(*command: str, **options: Any) -> asyncio.subprocess.Process:
        process = await start(*command, **options)
        started.append(process)
        monkeypatch.setattr(process, "kill", lambda: None)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_unkillable)
    async with here.running():
        await until(lambda: "NVIDIA's driver hangs" in caplog.text)
        assert (len(started), here.watch.settled) == (1, True)
        os.kill(started[0].pid, signal.SIGKILL)  # the driver answers at last
        await until(lambda: len(started) == 2)
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()


async def test_a_node_without_library_or_driver_has_no_gpus_and_the_reason(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    here = machine(0)
    here.set("init 9")
    async with here.running():
        await until(lambda: here.watch.settled)
    assert here.watch.reason.startswith("NVML finds no driver")
    watch = NvidiaWatch(nvidia_command("libkoord-no-such.so", 1), PciBus(tmp_path), PATIENT)
    task = asyncio.create_task(watch.run())
    await until(lambda: watch.settled)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert "libkoord-no-such.so: cannot open" in watch.reason
    assert watch.gpus() == ((), "", "", ())


@pytest.mark.parametrize(
    "cgroup",
    [
        f"5:memory:/kubepods/burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-ab.scope\n",
    ],
)
async def test_usage_of_a_process_counts_for_its_pod_and_the_node(
    cgroup: str, machine: Callable[..., Machine], tmp_path: Path
) -> None:
    here = machine()
    (tmp_path / "71").mkdir()
    (tmp_path / "71/cgroup").write_text(cgroup)
    uses = (f"use GPU-0 71 40 {4 * GIB}", f"use GPU-0 72 80 {2**62}")
    here.set(fake_nvml.gpu(0), fake_nvml.gpu(1), *uses)
    async with here.running():
        await until(lambda: bool(here.watch.usage))
    gpus = GpuCollector(here.watch, tmp_path)
    of_pod = GpuUsage("GPU-0", 40, 4 * GIB, 80 * GIB)
    of_node = {
        ("", 0): GpuUsage("GPU-0", 100, 80 * GIB, 80 * GIB),  # of both, and at most all of the card
        ("", 1): GpuUsage("GPU-1", 0, 0, 80 * GIB),
    }
    assert gpus.sample({UID: "folder"}) == of_node | {(UID, 0): of_pod}
    assert gpus.sample({}) == of_node  # no pod of this node
    late = GpuCollector(here.watch, tmp_path, clock_ns=lambda: here.watch.sampled_ns + 6 * 10**9)
    assert late.sample({}) == {}
