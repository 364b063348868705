"""Charge requests wait for the positions that they rest on, and are dropped once their sender has given up."""

from nats.aio.client import Client
from nats.aio.msg import Msg

from services.quota_ledger.charge_inbox import DROPPED_AFTER_S, ChargeInbox
from shared.bus.request import Request
from shared.domain.quota_charge import SUBJECT, ChargeRequest, encode


async def test_a_request_waits_for_its_positions_until_its_sender_has_given_up() -> None:
    clock, woken = [100.0], []
    inbox = ChargeInbox(lambda: woken.append(1), lambda: clock[0])
    for cycle in (1, 2):
        request = ChargeRequest(epoch=1, cycle=cycle, seen={"cluster": 5 * cycle}, groups=(("p",),))
        await inbox.receive(Request(Msg(Client(), subject=SUBJECT, data=encode(request))))
    assert (len(inbox), len(woken)) == (2, 2)
    assert inbox.ready({"cluster": 4}) == []
    [first] = inbox.ready({"cluster": 5})
    assert first.request.cycle == 1
    clock[0] += DROPPED_AFTER_S
    assert (inbox.ready({"cluster": 9}), len(inbox)) == ([], 1)
    clock[0] += 0.1
    assert (inbox.ready({"cluster": 9}), len(inbox)) == ([], 0)
