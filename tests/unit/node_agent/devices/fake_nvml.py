"""A library like NVIDIA's, compiled, which reads the cards from a file at each call, so that nvidia-ml-py runs on it.

Lines of the file: `gpu BUS MINOR UUID MEMORY ECC REMAP_FAILED ERROR MIG VIRTUALIZATION EVENTS NAME`, where ERROR is the
code that calls on the card return, MIG the number of its instances (-1: off) and EVENTS the code of registering;
`use UUID PID CORE MEMORY`, a process; `xid UUID NUMBER`, a critical error that is reported once; `init CODE`; `hang`,
in which the count never returns; `crash`.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

GIB = 2**30
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned int u; typedef unsigned long long ull;
typedef struct { ull total, free, used; } memory_t;
typedef struct { u pid; ull used; u gi, ci; } process_t;
typedef struct { u pid; ull at; u sm, mem, enc, dec; } sample_t;
typedef struct { char legacy[16]; u domain, bus, device, id, subsystem; char busId[32]; } pci_t;
typedef struct { void *device; ull type, data; u gi, ci; } event_t;
typedef struct { u bus; u minor; char uuid[64]; ull memory, ecc; u remap; int error, mig, virt, events; char name[96]; } gpu_t;
static gpu_t gpus[16]; static u count; static int init; static char xid[64]; static ull number; static int seen_xids;
static int xids;
static void load(void) {
    char line[512], word[16], uuid[64]; ull n;
    FILE *f = fopen(getenv("FAKE_NVML"), "r");
    count = 0; init = 0; xids = 0;
    while (f && fgets(line, sizeof line, f)) {
        gpu_t g; memset(&g, 0, sizeof g);
        if (sscanf(line, "gpu %x %u %63s %llu %llu %u %d %d %d %d %95[^\n]", &g.bus, &g.minor, g.uuid, &g.memory, &g.ecc,
                   &g.remap, &g.error, &g.mig, &g.virt, &g.events, g.name) == 11) gpus[count++] = g;
        else if (sscanf(line, "xid %63s %llu", uuid, &n) == 2) { if (xids++ == seen_xids) { strcpy(xid, uuid); number = n; } }
        else if (sscanf(line, "init %d", &init) == 1) ;
        else if (sscanf(line, "%15s", word) == 1 && !strcmp(word, "hang")) for (;;) pause();
        else if (!strcmp(word, "crash")) abort();
    }
    if (f) fclose(f);
}
static int is_mig(void *h) { return (ull)h >= 0x9000; }
static gpu_t *of(void *h) { u i = (u)((ull)h - 0x1000); return is_mig(h) || i >= count ? 0 : &gpus[i]; }
#define CARD gpu_t *g = of(h); if (!g) return 15; if (g->error) return g->error;
int nvmlInitWithFlags(u flags) { load(); return init; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "an error"; }
int nvmlSystemGetDriverVersion(char *t, u n) { strncpy(t, "550.54.15", n); return 0; }
int nvmlDeviceGetCount_v2(u *n) { load(); *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **h) { *h = (void *)(0x1000ull + i); return i < count ? 0 : 2; }
int nvmlDeviceGetMinorNumber(void *h, u *m) { CARD *m = g->minor; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) {
    if (is_mig(h)) { m->total = 10ull << 30; return 0; }
    CARD m->total = g->memory; return 0;
}
int nvmlDeviceGetUUID(void *h, char *t, u n) {
    if (is_mig(h)) { snprintf(t, n, "MIG-%llu", (ull)h - 0x9000); return 0; }
    CARD strncpy(t, g->uuid, n); return 0;
}
int nvmlDeviceGetName(void *h, char *t, u n) { CARD strncpy(t, g->name, n); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, pci_t *p) {
    gpu_t *g = of(h); if (!g) return 15;
    memset(p, 0, sizeof *p); p->bus = g->bus; snprintf(p->busId, 32, "00000000:%02X:00.0", g->bus); return 0;
}
int nvmlDeviceGetRemappedRows(void *h, u *c, u *n, u *p, u *f) { CARD *c = *n = *p = 0; *f = g->remap; return 0; }
int nvmlDeviceGetVirtualizationMode(void *h, u *m) { CARD *m = g->virt; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, ull *n) {
    CARD *n = g->ecc; return type == 1 && counter == 0 ? 0 : 2;
}
int nvmlEventSetCreate(void **s) { *s = (void *)0x77; return 0; }
int nvmlDeviceRegisterEvents(void *h, ull types, void *s) { CARD return types == 8 && s == (void *)0x77 ? g->events : 2; }
int nvmlEventSetWait_v2(void *s, event_t *e, u ms) {
    load();
    if (xids > seen_xids) {
        seen_xids++;
        for (u i = 0; i < count; i++) if (!strcmp(gpus[i].uuid, xid)) e->device = (void *)(0x1000ull + i);
        e->type = 8; e->data = number; return 0;
    }
    usleep(ms * 1000); return 10;
}
int nvmlDeviceGetMigMode(void *h, u *c, u *p) { CARD *c = *p = g->mig >= 0; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, u *n) { CARD *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u i, void **m) {
    CARD *m = (void *)(0x9000ull + i); return (int)i < g->mig ? 0 : 6;
}
static int used(char *uuid, process_t *p, sample_t *s) {
    char line[512], of_card[64]; u pid, core; ull memory; int n = 0;
    FILE *f = fopen(getenv("FAKE_NVML"), "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "use %63s %u %u %llu", of_card, &pid, &core, &memory) == 4 && !strcmp(of_card, uuid)) {
            if (p) p[n] = (process_t){pid, memory, 0, 0};
            if (s) { s[2 * n] = (sample_t){pid, 200, core, 0, 0, 0}; s[2 * n + 1] = (sample_t){pid, 100, 99, 0, 0, 0}; }
            n++;
        }
    if (f) fclose(f);
    return n;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *n, process_t *p) {
    CARD u room = *n; *n = used(g->uuid, 0, 0);
    if (!*n) return 0;
    if (room < *n || !p) return 7;
    used(g->uuid, p, 0); return 0;
}
int nvmlDeviceGetProcessUtilization(void *h, sample_t *s, u *n, ull since) {
    CARD u room = *n; *n = 2 * used(g->uuid, 0, 0);
    if (!s || room < *n) return 7;
    used(g->uuid, 0, s); return 0;
}
"""


def build(folder: Path) -> str:
    """Compiles the library; returns its path, which does not have the library's own name."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    (folder / "nvml.c").write_text(SOURCE)
    library = folder / "of-the-test.so"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", soname, "-o", library, folder / "nvml.c"], check=True)
    return str(library)


def gpu(
    number: int,
    *,
    minor: int | None = None,
    memory: int = 80 * GIB,
    ecc: int = 0,
    remap_failed: int = 0,
    error: int = 0,
    mig: int = -1,
    virtualization: int = 0,
    events: int = 0,
    name: str = "NVIDIA H100 80GB HBM3",
) -> str:
    """The line of the card `number`, whose bus is that of `sysfs_trees.gpu_address`."""
    values = (number if minor is None else minor, f"GPU-{number}", memory, ecc, remap_failed, error, mig)
    return f"gpu {0x1A + number:x} {' '.join(map(str, values))} {virtualization} {events} {name}"
