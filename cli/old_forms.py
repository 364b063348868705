"""Earlier forms of commands, which keep working; no help names them."""

from collections.abc import Mapping, Sequence

OLD_FORMS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("config", "show"): ("get", "config", "-o", "jsonpath={.text}"),
    ("config", "status"): ("get", "configs"),
    ("node", "explain"): ("explain", "node"),
    ("quota", "explain"): ("explain", "quota"),
    ("quota", "tree"): ("get", "quotas"),
    ("quota", "verify"): ("verify", "quotas"),
    ("quota", "whatif"): ("whatif", "quota"),
    ("quota", "why"): ("explain", "pod"),
}


def present_form(words: Sequence[str]) -> list[str]:
    """Returns the words of a command as they are now."""
    first = (words[0], words[1]) if len(words) > 1 else ("", "")
    return [*OLD_FORMS[first], *words[2:]] if first in OLD_FORMS else list(words)
