"""docs/security.md lists every label and annotation that the code reads or writes, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from shared.domain.misspelt_settings import NAMES
from shared.kube.elastic_quota import PREFIX

ROOT = Path(__file__).parents[2]
NAME = re.compile(
    r"(?:[a-z0-9-]+\.)*(?:koordinator\.sh|kubernetes\.io|(?:gang|descheduler)\.koordstream"
    r"|hami\.io|cambricon\.com|metax-tech\.com)/[A-Za-z0-9._-]+"
)

OTHERS = re.compile(
    r".*/v\d\w*"  # versions of APIs
    r"|kubernetes\.io/(gpu-memory|(batch|mid)-.*)|koordinator\.sh/(batch-cpu|batch-memory|(gpu|rdma|fpga)\b.*)"  # resources
    r"|kubernetes\.io/no-provisioner|node\.kubernetes\.io/.*"  # a provisioner, taints
    r"|metadata\..*"  # paths of fields in declared intents: their labels are in other modules
)
"""Names of the same form that are neither labels nor annotations."""


def in_code() -> Iterator[str]:
    """Yields the constants in the form of a label; the simulator's own are read in simulated clusters alone."""
    for folder in ("services", "shared"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.is_relative_to(ROOT / "services" / "simulator"):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                    yield node.value
                elif isinstance(node, ast.BinOp) and ast.unparse(node.left) == "PREFIX":
                    suffix = ast.literal_eval(node.right) if isinstance(node.right, ast.Constant) else ""
                    if suffix:
                        yield f"{PREFIX}{suffix}"


def suffixes_in_code() -> set[str]:
    """Returns the texts that modules with PREFIX may append to it."""
    modules = (path.read_text() for folder in ("services", "shared") for path in (ROOT / folder).rglob("*.py"))
    texts = (ast.walk(ast.parse(text)) for text in modules if "PREFIX" in text or "resource_list" in text)
    return {
        node.value
        for nodes in texts
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def documented() -> set[str]:
    section = (ROOT / "docs" / "security.md").read_text().partition("\n## Labels and annotations\n")[2]
    rows = [line.split("|") for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    assert all(len([cell for cell in row if cell.strip()]) == 4 for row in rows), "writer, check, and without webhooks"
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[1])}


def test_every_label_and_annotation_is_documented_and_no_other() -> None:
    known, listed, suffixes = set(in_code()), documented(), suffixes_in_code()
    labels = {name for name in known if not OTHERS.fullmatch(name)}
    assert sorted(labels - listed) == [], "add them to docs/security.md: who writes them, what checks them"
    gone = {name for name in listed - labels if name.removeprefix(PREFIX) not in suffixes}
    assert sorted(gone) == [], "nothing reads or writes them"


def test_a_name_that_is_documented_is_never_called_misspelt() -> None:
    of_gangs = "gang.scheduling.koordinator.sh"
    listed = {tuple(name.rsplit("/", 1)) for name in documented() if re.match(r"([a-z.]+\.)?koordinator\.sh/", name)}
    known = {(domain, name) for domain, names in NAMES.items() for name in names}
    assert known == {(domain, name) for domain, name in listed if domain != of_gangs}
