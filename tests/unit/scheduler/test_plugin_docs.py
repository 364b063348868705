"""docs/plugins.md speaks of every plugin, every reason and every argument that there is."""

from pathlib import Path

import msgspec
import pytest

from services.scheduler.plugins.default_preemption.args import PreemptionArgs
from services.scheduler.plugins.load_aware_scheduling.args import AggregatedArgs, LoadAwareArgs
from services.scheduler.plugins.node_numa_resource.args import NumaArgs
from services.scheduler.plugins.node_resources_fit.args import FitArgs
from services.scheduler.plugins.registry import REGISTRY
from shared.domain.deprecated_resources import RENAMED

TEXT = (Path(__file__).parents[3] / "docs/plugins.md").read_text()


@pytest.mark.parametrize("name", sorted({*REGISTRY.specs, *REGISTRY.built_in, *REGISTRY.unsupported}))
def test_every_plugin_is_described(name: str) -> None:
    assert f"`{name}`" in TEXT or f"## {name}\n" in TEXT


@pytest.mark.parametrize("name", sorted(REGISTRY.specs))
def test_every_reason_of_a_plugin_is_listed(name: str) -> None:
    missing = [code for code in REGISTRY.specs[name].reasons if f"`{code}`" not in TEXT]
    assert not missing


@pytest.mark.parametrize("args", [LoadAwareArgs, AggregatedArgs, NumaArgs, FitArgs, PreemptionArgs])
def test_every_argument_is_named(args: type[msgspec.Struct]) -> None:
    missing = [field.encode_name for field in msgspec.structs.fields(args) if field.encode_name not in TEXT]
    assert not missing


def test_every_deprecated_name_of_a_resource_is_named() -> None:
    assert all(name.partition("/")[2] in TEXT for name in RENAMED)
