"""The name that is probably meant."""

import pytest

from shared.closest_name import did_you_mean

KNOWN = ("ml/train", "default/web-0", "shop/web-1")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("default/train", "ml/train"),
        ("default/trian", "ml/train"),
        ("default/web0", "default/web-0"),
        ("SHOP/web-1", "shop/web-1"),
        ("default/xyzzy", ""),
    ],
)
def test_an_object_of_another_namespace_is_the_closest_by_its_own_name(name: str, meant: str) -> None:
    assert did_you_mean(name, KNOWN) == (f"; perhaps {meant!r} is meant" if meant else "")
