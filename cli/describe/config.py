"""`koord describe config`: the configuration of a context."""

import msgspec

from cli.commands.active_config import Refused, status_of, text_of
from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Value
from cli.terminal import name_completion
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.kube.instants import SECOND, instant_text
from shared.log.reader import LogReader


async def describe(log: LogReader, name: str) -> Description:
    """Describes the configuration of a context.

    Raises:
        KoordError: the context takes none.
    """
    known = {each.context: each for each in await status_of(log.database)}
    if name not in known:
        raise KoordError(f"there is no config {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}")
    status = known[name]
    found: dict[str, Value] = {"Name": name}
    if (taken := status.in_force) is not None:
        found |= {
            "In force": taken.name,
            **({"Deleted": taken.deletion} if taken.deletion else {}),
            "Since": instant_text(taken.since_ns // SECOND * SECOND),
            "Digest": taken.digest[:12],
            "Event": f"{name}/{taken.seq}",
            "Without effect": taken.without_effect,
            "Settings": [f"{key}={_word(value)}" for key, value in sorted(taken.settings.items())],
        }
    else:
        found["In force"] = "nothing was applied yet"
    if (refused := status.refused) is not None:
        label = "Rejected" if refused.stands else "Rejected earlier"
        found[label] = _refused(refused)
    if taken is not None:
        found["Text"] = _readable(await text_of(log.database, name))
    return found


def _word(value: str) -> str:
    """Returns a recorded setting, of which truth values are kept as Python writes them, in words of JSON."""
    return {"True": "true", "False": "false", "": '""'}.get(value, value)


def _readable(text: str) -> list[str]:
    """Returns the lines of a configuration; of one with several documents, such as a ConfigMap's keys, those of each below
    its key.
    """
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError:
        return text.splitlines()
    return [
        line
        for key, document in found.items()
        for line in (f"{key}:", *(f"  {each}" for each in document.splitlines()))
    ]


def _refused(refused: Refused) -> str:
    return f"{refused.source} at {instant_text(refused.at_ns // SECOND * SECOND)}: {'; '.join(refused.faults)}"


command = describe_command(
    describe,
    "Show the configuration of a context: what is in force since when, what was rejected and why, and its text.",
    complete=name_completion.contexts,
)
