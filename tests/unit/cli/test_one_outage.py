"""One server that is away is one finding of the doctor, with what follows from it."""

from cli.doctor.check_cluster import about_lists, about_permissions
from cli.doctor.check_services import about_unreachable
from cli.doctor.finding import Finding
from cli.doctor.one_outage import one_for_each_outage
from shared.kube.rbac_permissions import Permissions
from shared.kube.short_lists import GatewayLists, Unread
from shared.runtime.status import Status
from shared.unreachable import Unreachable

AWAY = Unreachable("the API server at https://kube:6443", 1_800_000_000_000_000_000, "Connection refused")
NATS = Unreachable("NATS at nats://kube:4222", 1_800_000_000_000_000_000, "Connection refused")
WITHOUT = Permissions("https://kube:6443", 0, problem="Connection refused")
UNREAD = GatewayLists(unread=(Unread("pods", 12.0, "watch: GET /api/v1/pods: Connection refused"),))
OTHER = Finding("ok", "disk", "40 % are free")


def status(*unreachable: Unreachable) -> Status:
    return Status("gateway", "leading", 1, 0, 0.0, 0, {}, bus=True, unreachable=unreachable)


def test_a_dead_api_server_is_one_finding_that_names_what_follows() -> None:
    found = [
        *about_unreachable({"gateway": status(AWAY)}), OTHER, *about_permissions(WITHOUT), *about_lists(UNREAD)
    ]  # fmt: skip
    outage, other = one_for_each_outage(found)
    assert other is OTHER
    assert (outage.severity, outage.area) == ("error", "services")
    assert outage.what == (
        "gateway cannot reach the API server at https://kube:6443 since 2027-01-15T08:00:00Z: Connection refused; "
        "what its account may do is not known; it has not read pods for 12 s"
    )
    assert outage.do.startswith("see that it runs")
    assert type(outage) is Finding


def test_without_the_status_of_the_gateway_its_answer_names_the_outage() -> None:
    [outage] = one_for_each_outage([*about_permissions(WITHOUT), *about_lists(UNREAD)])
    assert outage.area == "rbac"
    assert outage.what.endswith("Connection refused; it has not read pods for 12 s")


def test_resources_that_are_not_read_for_another_reason_and_another_server_are_findings_of_their_own() -> None:
    [unread] = one_for_each_outage(about_lists(UNREAD))
    assert (unread.area, unread.what) == ("cluster", "the gateway has not read pods for 12 s: Connection refused")
    found = one_for_each_outage([*about_unreachable({"gateway": status(AWAY, NATS)}), *about_lists(UNREAD)])
    assert [one.what.count("it has not read") for one in found] == [1, 0]
