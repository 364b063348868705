"""ElasticQuotaArgs. They are checked; the quota ledger has settings of its own, so none has an effect here.

Source: spec/api.md 4.3.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.helper.plugin_args import check_duration, decode_args
from shared.errors import KoordError
from shared.kube.quantity import BadQuantity, nanos


class BadElasticQuotaArgs(KoordError):
    """ElasticQuotaArgs that cannot be used; gives the path, the value and what is allowed."""


class HookPlugin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A hook of upstream's quota groups."""

    key: str = ""
    factory_key: str = ""
    factory_args: str = ""


class ElasticQuotaArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The arguments of upstream's plugin."""

    delay_evict_time: str | None = None
    revoke_pod_interval: str | None = None
    quota_snapshot_update_interval: str | None = None
    default_quota_group_max: dict[str, str | int] | None = None
    system_quota_group_max: dict[str, str | int] | None = None
    quota_group_namespace: str | None = None
    monitor_all_quotas: bool | None = None
    enable_check_parent_quota: bool | None = None
    enable_queue_hint: bool | None = None
    enable_runtime_quota: bool | None = None
    enable_min_quota_scale: bool | None = None
    disable_default_quota_preemption: bool | None = None
    hook_plugins: tuple[HookPlugin, ...] | None = None


UNUSED = tuple(field.encode_name for field in msgspec.structs.fields(ElasticQuotaArgs))
"""Arguments without an effect."""


def read_quota_args(raw: Mapping[str, Any], source: str = "ElasticQuotaArgs") -> ElasticQuotaArgs:
    """Decodes and checks ElasticQuotaArgs.

    Raises:
        BadElasticQuotaArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, ElasticQuotaArgs, source, BadElasticQuotaArgs)
    for name, text in (
        ("delayEvictTime", args.delay_evict_time),
        ("revokePodInterval", args.revoke_pod_interval),
        ("quotaSnapshotUpdateInterval", args.quota_snapshot_update_interval),
    ):
        if text is not None:
            check_duration(name, text, source, BadElasticQuotaArgs)
    _check_amounts("defaultQuotaGroupMax", args.default_quota_group_max or {}, source)
    _check_amounts("systemQuotaGroupMax", args.system_quota_group_max or {}, source)
    return args


def _check_amounts(name: str, amounts: Mapping[str, str | int], source: str) -> None:
    for resource, amount in amounts.items():
        try:
            negative = nanos(str(amount)) < 0
        except BadQuantity as error:
            raise BadElasticQuotaArgs(f"{source}: {name}[{resource}]: {error}") from error
        if negative:
            raise BadElasticQuotaArgs(f"{source}: {name}[{resource}] is {amount}; give 0 or more")
