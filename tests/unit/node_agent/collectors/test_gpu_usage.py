"""GPU usage, from a library like NVIDIA's with one GPU: two processes compute, one of them was sampled on its cores."""

import shutil
import subprocess
from pathlib import Path

import pytest

from services.node_agent.collectors.gpu_usage import GpuCollector, GpuUsage
from services.node_agent.collectors.nvml import GpusUnavailable, Nvml, ProcessUse
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.report_builder import ReportBuilder, Sender
from shared.agents.report import GpuSum

GIB = 2**30
UID = "0f1c22aa-5b0e-4c6c-9a53-000000000001"
SOURCE = """
#include <string.h>
typedef unsigned int u; typedef unsigned long long ull;
typedef struct { ull total, free, used; } memory_t;
typedef struct { u pid; ull used; u gi, ci; } process_t;
typedef struct { u pid; ull at; u sm, mem, enc, dec; } sample_t;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(u *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **h) { *h = (void *)0x1234567890; return 0; }
int nvmlDeviceGetMinorNumber(void *h, u *m) { *m = 3; return h == (void *)0x1234567890 ? 0 : 2; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) { m->total = 16ull << 30; m->used = 5ull << 30; return 0; }
int nvmlDeviceGetUUID(void *h, char *t, u n) { strncpy(t, "GPU-1", n); return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *n, process_t *p) {
    p[0] = (process_t){71, 4ull << 30, 0, 0}; p[1] = (process_t){72, 1ull << 30, 0, 0}; *n = 2; return 0;
}
int nvmlDeviceGetProcessUtilization(void *h, sample_t *s, u *n, ull since) {
    if (!s || *n < 3) { *n = 3; return 7; }
    s[0] = (sample_t){71, 200, 40, 0, 0, 0}; s[1] = (sample_t){71, 100, 90, 0, 0, 0}; s[2] = (sample_t){73, 300, 5, 0, 0, 0};
    *n = 3; return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "nvml.so", folder / "nvml.c"], check=True)
    return str(folder / "nvml.so")


def test_a_node_without_the_library_has_no_gpus() -> None:
    with pytest.raises(GpusUnavailable, match="cannot be opened"):
        Nvml("libkoord-no-such.so")


def test_only_processes_that_compute_and_were_seen_count_by_their_newest_sample(library: str) -> None:
    nvml = Nvml(library)
    (gpu,) = nvml.gpus
    assert (gpu.minor, gpu.uuid, gpu.memory_total) == (3, "GPU-1", 16 * GIB)
    assert nvml.processes(gpu) == [ProcessUse(71, 40, 4 * GIB)]


@pytest.mark.parametrize(
    "cgroup",
    [
        f"5:memory:/kubepods/burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-ab.scope\n",
    ],
)
def test_gpu_usage_of_a_process_counts_for_its_pod_and_the_node(library: str, cgroup: str, tmp_path: Path) -> None:
    (tmp_path / "71").mkdir()
    (tmp_path / "71/cgroup").write_text(cgroup)
    gpus = GpuCollector(Nvml(library), tmp_path)
    usage = GpuUsage("GPU-1", 40, 4 * GIB, 16 * GIB)
    assert gpus.sample({UID: "folder"}) == {("", 3): usage, (UID, 3): usage}
    assert gpus.sample({}) == {("", 3): usage}  # no pod of this node
    builder = ReportBuilder(0)
    for second in (1, 2):
        builder.add(UsageSnapshot(second * 10**9, None, None, None, {}, gpus=gpus.sample({UID: ""})))
    made = builder.build(Sender("n", "b"), 1, 2 * 10**9, 10**18)
    assert made.gpus == (
        GpuSum("", 3, "GPU-1", 80, 8 * GIB, 2, 16 * GIB),
        GpuSum(UID, 3, "GPU-1", 80, 8 * GIB, 2, 16 * GIB),
    )
