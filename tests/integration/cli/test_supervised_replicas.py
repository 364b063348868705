"""Two replicas of a service under the supervisor: one writes, the other is a standby."""

from pathlib import Path

from cli.supervisor.supervisor import Spec, Supervisor, Unit
from cli.supervisor.system_servers import Servers
from tests.support.prepared_folders import copy_installation
from tests.support.waiting import until


async def test_when_the_writer_is_killed_the_other_replica_takes_over(tmp_path: Path) -> None:
    specs = [Spec("one", "simulator"), Spec("two", "simulator")]
    async with (
        Servers(copy_installation(tmp_path)) as servers,
        Supervisor(specs, servers.endpoints, tmp_path) as supervisor,
    ):

        def by_state() -> list[Unit]:
            return sorted(supervisor.units.values(), key=lambda unit: unit.state)

        # The later writer waits for the lock for a moment, too.
        writer, standby = await until(
            by_state,
            "one leads and one waits",
            holds=lambda units: [unit.state for unit in units] == ["leading", "waiting-for-lock"],
        )
        supervisor.kill(writer.spec.name)
        await supervisor.wait_until(lambda unit: unit is writer or unit.state == "leading", 120, "taken over")
        await supervisor.wait_until(lambda unit: unit is standby or unit.state == "waiting-for-lock", 120, "back")
        assert standby.status
        assert writer.status
        assert standby.status.epoch > writer.status.epoch
        assert standby.restarts == 0
