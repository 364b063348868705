"""The name that was probably meant."""

import msgspec
import pytest

from shared.closest_name import did_you_mean, with_closest_field


class Inner(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    usage_thresholds: dict[str, int] | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: list[Inner] | None = None


def test_the_closest_name_is_given_and_none_where_none_is_close() -> None:
    assert did_you_mean("loadaware", ["LoadAwareScheduling", "NodeName"]) == "; perhaps 'LoadAwareScheduling' is meant"
    assert did_you_mean("zzz", ["LoadAwareScheduling"]) == ""


def test_an_unknown_field_gets_the_closest_one_of_the_type_and_of_those_within() -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert({"inner": [{"usageTreshold": {}}]}, Outer)
    assert with_closest_field(str(error.value), Outer).endswith("; perhaps 'usageThresholds' is meant")
    assert with_closest_field("Expected `int`", Outer) == "Expected `int`"
