"""The commands in `koord doctor`'s remedies: kubectl's on a cluster, those of `koord dev` on the simulated one."""

import pytest

from cli.commands.active_config import ConfigStatus, Refused
from cli.doctor.check_cluster import about_configuration


@pytest.mark.parametrize(
    ("source", "simulated", "remedy"),
    [
        ("ConfigMap ns/config", False, "correct it: `kubectl edit configmap config -n ns`;"),
        ("ConfigMap ns/config", True, "correct it: `koord dev patch configmap config PATCH -n ns`;"),
        ("file /etc/ns/config.yaml", True, "correct it there;"),
    ],
)
def test_a_refused_configuration_is_corrected_where_it_was_written(source: str, simulated: bool, remedy: str) -> None:
    refused = Refused(source, "00", 2, 1, "", "x", ("x",), stands=True)
    [finding] = about_configuration([ConfigStatus("slo", None, refused)], simulated=simulated)
    assert finding.do.startswith(remedy)
