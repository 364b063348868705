"""shared/runtime/declared_intents.py, generated from the manifests: a service may not import another one's manifest."""

import subprocess
import sys

from cli.service_list import SERVICES, manifest
from shared.runtime.intent_rights import INTENTS, IntentRight

_HEAD = '''"""The intents that each context may carry, by its name in a manifest.

Generated from the manifests by `python -m tools.generate`; edit those.
"""

from collections.abc import Mapping

from shared.events import Event
{imports}
from shared.runtime.intent_rights import IntentRight, refusal
from shared.runtime.sharding import declared_name

DECLARED: Mapping[str, tuple[IntentRight, ...]] = {{
'''
_TAIL = '''}}


def declared_refusal(context: str, event: Event) -> str:
    """Returns why a context may not carry an intent; empty for one that its service declares."""
    return refusal(context, DECLARED.get(declared_name(context), ()), event)
'''


def declared_intents() -> str:
    """Returns the text of the module. The same manifests give the same bytes."""
    declared = {one.writes: one.intents for one in map(manifest, SERVICES) if one.intents}
    modules: dict[str, list[str]] = {}
    for intent in INTENTS:
        modules.setdefault(intent.__module__, []).append(intent.__name__)
    imports = "\n".join(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items()))
    rows = "".join(
        f"    {context!r}: (" + "".join(f"{_text(right)}, " for right in rights) + "),\n"
        for context, rights in sorted(declared.items())
    )
    return _formatted(_HEAD.format(imports=imports) + rows + _TAIL.format())


def _text(right: IntentRight) -> str:
    given = {name: value for name, value in right._asdict().items() if value != right._field_defaults.get(name)}
    intent = given.pop("intent")
    named = "".join(f", {name}={value!r}" for name, value in given.items())
    return f"IntentRight({intent.__name__}{named})"


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", "declared_intents.py", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout  # noqa: S603
