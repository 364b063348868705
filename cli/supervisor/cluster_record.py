"""The record of a system's cluster, in the system's folder; a simulated one has none."""

from pathlib import Path
from shlex import quote

import msgspec

from cli.credentials.secrets_file import write_private

_RECORD = "cluster.json"


class ClusterRecord(msgspec.Struct, frozen=True):
    """The cluster that a folder belongs to.

    Attributes:
        cluster: UID of its namespace kube-system.
        server: address of its API server when it was last reached.
        kubeconfig: file with which it was last reached; empty where an earlier release recorded it.
    """

    cluster: str
    server: str
    kubeconfig: str = ""

    @property
    def start(self) -> str:
        """The command that starts the system, without its folder."""
        return f"koord up --kubeconfig {quote(self.kubeconfig) if self.kubeconfig else 'FILE'}"


def record_cluster(folder: Path, record: ClusterRecord) -> None:
    """Writes the record of a folder, which is created where it does not exist."""
    write_private(folder / _RECORD, msgspec.json.encode(record).decode())


def recorded_clusters(root: Path) -> dict[Path, ClusterRecord]:
    """Returns the clusters of the systems directly below a folder, and of the folder itself, by the system's folder."""
    files = [path for path in (root / _RECORD, *sorted(root.glob(f"*/{_RECORD}"))) if path.exists()]
    return {file.parent: msgspec.json.decode(file.read_bytes(), type=ClusterRecord) for file in files}
