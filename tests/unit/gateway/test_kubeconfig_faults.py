"""A kubeconfig that cannot be used: the error names the file, the field and what to do."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.pki import Authority
from services.gateway.kube_api.authenticated_connections import Connections, NoCluster

BAD = "bm8gUEVN"  # `no PEM` in base64


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.load_or_create(tmp_path_factory.mktemp("pki"))


def kubeconfig(tmp_path: Path, authority: Authority, **changed: dict[str, Any]) -> Path:
    """Writes a kubeconfig; `user` and `cluster` change fields, None removes one."""
    pair = authority.issue("ada")
    path = write_kubeconfig(
        tmp_path / "config", url="https://127.0.0.1:1", ca=authority.pem, user="ada", credentials=pair
    )
    document = yaml.safe_load(path.read_text())
    for part, fields in changed.items():
        holder = document[f"{part}s"][0][part]
        holder |= fields
        for name in [name for name, value in holder.items() if value is None]:
            del holder[name]
    path.write_text(yaml.safe_dump(document))
    return path


async def fault(path: Path) -> str:
    with pytest.raises(NoCluster) as raised:
        async with Connections(str(path)):
            pass
    assert str(raised.value).startswith(f"kubeconfig {path} cannot be used: ")
    assert str(raised.value).endswith("with `--kubeconfig` or in KOORD_GATEWAY_KUBECONFIG")
    return str(raised.value).removeprefix(f"kubeconfig {path} cannot be used: ").partition("; correct it")[0]


@pytest.mark.parametrize(
    ("part", "field", "of", "what"),
    [
        ("user", "client-certificate-data", "user 'ada'", "certificate"),
        ("user", "client-key-data", "user 'ada'", "private key"),
        ("cluster", "certificate-authority-data", "cluster 'koordstream-dev'", "certificate"),
    ],
)
async def test_a_field_without_pem_or_base64(
    tmp_path: Path, authority: Authority, part: str, field: str, of: str, what: str
) -> None:
    path = kubeconfig(tmp_path, authority, **{part: {field: BAD}})
    assert await fault(path) == f"{field} of {of} holds no {what} in PEM, which begins with -----BEGIN"
    path = kubeconfig(tmp_path, authority, **{part: {field: "abc"}})
    assert await fault(path) == f"{field} of {of} is not base64"


async def test_a_key_of_another_certificate_and_none(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "key").write_bytes(authority.issue("other").key)
    path = kubeconfig(tmp_path, authority, user={"client-key-data": None, "client-key": "key"})
    assert await fault(path) == "client-key of user 'ada' is not the key of its client-certificate"
    path = kubeconfig(tmp_path, authority, user={"client-key-data": None})
    assert await fault(path) == "user 'ada' has a client-certificate and no client-key"


async def test_a_file_that_is_not_there(tmp_path: Path, authority: Authority) -> None:
    path = kubeconfig(tmp_path, authority, user={"client-certificate-data": None, "client-certificate": "gone.crt"})
    assert "client-certificate of user 'ada' names gone.crt, which cannot be read" in await fault(path)
    assert await fault(tmp_path / "absent") == "it cannot be read (No such file or directory)"


async def test_a_context_that_is_not_there_and_a_file_of_another_kind(tmp_path: Path, authority: Authority) -> None:
    path = kubeconfig(tmp_path, authority)
    document = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(document | {"current-context": "nosuch"}))
    assert await fault(path) == "current-context is 'nosuch', and its contexts are: default"
    path.write_text(yaml.safe_dump(document | {"users": []}))
    assert await fault(path) == "context 'default' names user 'ada', which it does not have"
    path.write_text("[1]")
    assert await fault(path) == "it is no kubeconfig"
    path.write_text("{")
    assert (await fault(path)).startswith("it is not YAML: ")


async def test_one_without_a_fault_is_used(tmp_path: Path, authority: Authority) -> None:
    async with Connections(str(kubeconfig(tmp_path, authority))):
        pass
