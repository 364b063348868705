"""An image of one static program, as a tar file that containerd imports (docker-archive)."""

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "workload"


def write_image(path: Path, program: Path, names: Sequence[str]) -> Path:
    """Writes an image that has nothing but a program, at its root and as its entry point; returns the file's path.

    Args:
        names: with their tags.
    """
    layer = _tar({PROGRAM: (program.read_bytes(), 0o755)})
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{PROGRAM}"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name, layer_name = f"{hashlib.sha256(config).hexdigest()}.json", f"{digest}/layer.tar"
    manifest = json.dumps([{"Config": config_name, "RepoTags": list(names), "Layers": [layer_name]}]).encode()
    files = {config_name: (config, 0o644), layer_name: (layer, 0o644), "manifest.json": (manifest, 0o644)}
    path.write_bytes(_tar(files))
    return path


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, (data, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()
