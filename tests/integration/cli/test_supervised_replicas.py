"""Two replicas of a service under the supervisor: one writes, the other is a standby."""

from pathlib import Path

from cli.supervisor.supervisor import Spec, Supervisor
from cli.supervisor.system_servers import Servers
from tests.support.prepared_folders import copy_installation


async def test_when_the_writer_is_killed_the_other_replica_takes_over(tmp_path: Path) -> None:
    specs = [Spec("one", "simulator"), Spec("two", "simulator")]
    async with (
        Servers(copy_installation(tmp_path)) as servers,
        Supervisor(specs, servers.endpoints, tmp_path) as supervisor,
    ):
        await supervisor.wait_until(lambda unit: unit.state in {"leading", "waiting-for-lock"}, 120, "caught up")
        writer, standby = sorted(supervisor.units.values(), key=lambda unit: unit.state)
        assert (writer.state, standby.state) == ("leading", "waiting-for-lock")
        supervisor.kill(writer.spec.name)
        await supervisor.wait_until(lambda unit: unit is writer or unit.state == "leading", 120, "taken over")
        await supervisor.wait_until(lambda unit: unit is standby or unit.state == "waiting-for-lock", 120, "back")
        assert standby.status
        assert writer.status
        assert standby.status.epoch > writer.status.epoch
        assert standby.restarts == 0
