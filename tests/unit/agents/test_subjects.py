"""The node in subjects and topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.agents import subjects
from shared.agents.subjects import BadNode


def test_a_nodes_name_is_one_token_of_subjects_and_topics() -> None:
    assert subjects.token("worker-1") == "worker-1"
    assert subjects.subject("rack.1/a b", subjects.REPORT) == "koord.node.rack%2E1%2Fa%20b.report"
    assert subjects.topic("rack.1", subjects.SLO) == "koord/node/rack%2E1/slo"


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_a_token_decodes_to_its_node_and_has_no_separator(node: str) -> None:
    token = subjects.token(node)
    assert not set(".*> /+#") & set(token)
    assert subjects.node_of_token(token) == node
    assert subjects.node_of(subjects.subject(node, subjects.ACTION)) == node
    assert subjects.node_of(subjects.topic(node, subjects.ACTION)) == node


@pytest.mark.parametrize("token", ["", "a.b", "%", "%2", "%2e", "%41", "%zz", "%FF", "a b", "*"])
def test_each_node_has_one_spelling(token: str) -> None:
    with pytest.raises(BadNode, match="is no node's token"):
        subjects.node_of_token(token)


@pytest.mark.parametrize("where", ["koord.node.a", "koord.log.a.report", "koord/node/a/b/report", "report"])
def test_other_subjects_belong_to_no_node(where: str) -> None:
    with pytest.raises(BadNode, match="is no subject of a node"):
        subjects.node_of(where)


def test_a_node_without_a_name_has_no_subject() -> None:
    with pytest.raises(BadNode, match="give the Kubernetes node's name"):
        subjects.subject("", subjects.REPORT)
