"""Files of the audit service on this machine: a key of the system's own, and a folder for checkpoints."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.supervisor.supervisor import Spec

KEY = "KOORD_AUDIT_KEY"
CHECKPOINTS = "KOORD_AUDIT_CHECKPOINT_DIR"


def with_audit(specs: Sequence[Spec], folder: Path) -> list[Spec]:
    """The same processes; the audit service with a key, made with mode 0600 when there is none, and a folder below
    `folder`.
    """
    return [spec._replace(env={**_settings(folder), **spec.env}) if spec.service == "audit" else spec for spec in specs]


def _settings(folder: Path) -> Mapping[str, str]:
    from services.audit.checkpoint_signing import generate

    key = os.environ.get(KEY, "")
    if not key:
        file = folder / "audit" / "audit.key"
        if not file.exists():
            generate(file)
        key = str(file)
    return {KEY: key, CHECKPOINTS: os.environ.get(CHECKPOINTS, str(folder / "audit" / "checkpoints"))}
