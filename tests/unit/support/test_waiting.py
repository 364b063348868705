"""Waiting of tests ends with a readable error, and asserts in helper modules show their values."""

import asyncio
from importlib.util import find_spec

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tests.support.waiting import in_thread, until, wait_until


def test_asserts_in_helper_modules_are_rewritten() -> None:
    for helper in ("tests.support.waiting", "tests.e2e.stage", "tests.support.log_system"):
        spec = find_spec(helper)
        assert spec is not None
        assert isinstance(spec.loader, AssertionRewritingHook), helper


async def test_a_wait_returns_the_value_that_holds() -> None:
    values = iter(range(10))
    assert await until(lambda: next(values)) == 1
    assert await until(lambda: next(values), holds=lambda value: value > 5) == 6
    assert await until(lambda: asyncio.sleep(0, next(values))) == 7
    assert await until(in_thread(next, values)) == 8
    assert wait_until(lambda: next(values)) == 9


async def test_a_wait_that_is_given_up_names_the_condition_and_the_last_value() -> None:
    with pytest.raises(AssertionError, match=r"^node: not within 0.01 s; the last value is 3$"):
        await until(lambda: 3, "node", holds=lambda value: value == 4, within_s=0.01)
    with pytest.raises(
        AssertionError, match=r"condition at .*test_waiting\.py:\d+: not within 0 s; the last value is None"
    ):
        wait_until(lambda: None, within_s=0)


async def test_a_look_that_hangs_is_given_up() -> None:
    with pytest.raises(AssertionError, match="the last value is 'nothing yet'"):
        await until(asyncio.Event().wait, within_s=0.01)


async def test_a_time_out_of_the_look_itself_is_raised_as_it_is() -> None:
    async def late() -> None:
        raise TimeoutError("the server does not answer")

    with pytest.raises(TimeoutError, match="the server does not answer"):
        await until(late)
