"""Hook GPUEnvInject: the variables by which a container sees its GPUs alone, and HAMi-core's limits of a shared one.

Source: spec/node-agent.md 4.7.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

from services.node_agent.runtime_hooks.allocated_devices_of_pod import devices_of_type
from services.node_agent.runtime_hooks.container_hooks import Adjustment, BindMount, ContainerContext, Hook, HookFailed
from shared.domain.device_requests import CORE, MEMORY, RATIO
from shared.kube.device import GPU, HAMI_CORE, ISOLATION_PROVIDER
from shared.kube.quantity import BadQuantity, nanos, value

NAME = "GPUEnvInject"
LOCKS = "/tmp/vgpulock"  # noqa: S108  HAMi-core's own path
WHOLE_PERCENT = 100


def gpu_environment(hami_core: str, *, monitor: bool) -> Hook:
    """Returns the hook.

    `NVIDIA_VISIBLE_DEVICES` are the minors of the pod's GPUs. Where HAMi-core isolates the pod and its first GPU is
    shared (less than 100 % of its memory), that library is loaded into each program, with the memory in bytes and the
    percentage of cores as limits.

    Args:
        hami_core: path of HAMi-core's library, on the host and in containers.
        monitor: gate HamiCoreVGPUMonitor: usage is kept in a file of the container's own folder on the host.
    """

    def hook(context: ContainerContext) -> Adjustment:
        devices = devices_of_type(NAME, context, GPU)
        if not devices:
            return Adjustment()
        env = {"NVIDIA_VISIBLE_DEVICES": ",".join(str(device.minor) for device in devices)}
        if context.labels.get(ISOLATION_PROVIDER) != HAMI_CORE:
            return Adjustment(env)
        resources = devices[0].resources or {}
        if _amount(context, resources, RATIO) >= WHOLE_PERCENT:
            return Adjustment(env)
        env["CUDA_DEVICE_MEMORY_LIMIT"] = str(_amount(context, resources, MEMORY))
        if CORE in resources:
            env["CUDA_DEVICE_SM_LIMIT"] = str(_amount(context, resources, CORE))
        env["LD_PRELOAD"] = hami_core
        mounts = [BindMount(hami_core, hami_core), BindMount(LOCKS, LOCKS)]
        if monitor:
            folder, name = str(PurePosixPath(hami_core).parent), f"{context.pod_uid}_{context.container}"
            if "/" in name or "\0" in name:
                raise HookFailed(NAME, context, f"{name!r} is no name of a folder")
            env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{folder}/{name}.cache"
            mounts.insert(0, BindMount(f"{folder}/containers/{name}", folder, scratch=True))
        return Adjustment(env, tuple(mounts))

    return hook


def _amount(context: ContainerContext, resources: Mapping[str, str], name: str) -> int:
    """Returns an amount in whole units.

    Raises:
        HookFailed: it is absent, or no quantity.
    """
    try:
        return value(nanos(resources[name]))
    except KeyError:
        raise HookFailed(NAME, context, f"its first GPU has no {name}, which {HAMI_CORE} needs") from None
    except BadQuantity as error:
        raise HookFailed(NAME, context, f"{name} of its first GPU: {error}") from error
