"""Topics: what may be declared."""

from collections.abc import Callable

import numpy as np
import pytest

from lumos.errors import ProtocolError
from lumos.exchange import PUBLIC_ID, TOPICS, Door, Topic
from lumos.secagg import ideal as aggregate
from lumos.strict.messages import PROPAGATED_LABEL
from lumos.twoparty import comparer as compare
from lumos.twoparty import score

Declare = Callable[..., Topic]


def test_a_name_is_declared_once(declare: Declare) -> None:
    declare("test/once")
    with pytest.raises(ValueError, match="'test/once' is declared twice"):
        declare("test/once")


@pytest.mark.parametrize("door", list(Door))
def test_control_and_only_control_has_a_vocabulary(declare: Declare, door: Door) -> None:
    words = () if door is Door.CONTROL else ("yes", "no")
    with pytest.raises(ValueError, match="control topics, and only they, have a vocabulary"):
        declare("test/words", door=door, vocabulary=words)
    assert "test/words" not in TOPICS


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": None, "dtype": np.int64},
        {"door": Door.CONTROL, "vocabulary": ("yes", "no"), "dtype": np.int64},
        {"door": Door.CONTROL, "vocabulary": PUBLIC_ID, "dtype": np.uint8},
        {"door": Door.AGGREGATE, "common": True},
        {"door": Door.OPEN, "about_edges": True},
        {"door": Door.AGGREGATE, "about_edges": True},
        {"door": Door.CONTROL, "vocabulary": ("yes", "no"), "about_edges": True},
    ],
)
def test_a_refused_topic_does_not_exist(declare: Declare, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="test/refused"):
        declare("test/refused", **wrong)
    assert "test/refused" not in TOPICS


def test_only_propagated_labels_are_about_edges() -> None:
    """A topic of a device's own data that were counted apart would lack in its ε."""
    assert [topic for topic in TOPICS.values() if topic.about_edges] == [PROPAGATED_LABEL]
    assert PROPAGATED_LABEL.door is Door.RELEASE
    assert PROPAGATED_LABEL.common


def test_size_of_a_message(declare: Declare) -> None:
    assert declare("test/scalar").size == 1
    assert declare("test/matrix", dtype=np.float64, shape=(3, 5)).size == 120
    with pytest.raises(ValueError, match="differ in length"):
        _ = declare("test/ragged", shape=None).size


def test_a_word_for_all_messages(declare: Declare) -> None:
    topic = declare("test/word", door=Door.CONTROL, vocabulary=("yes", "no"))
    outbox = topic.send(np.arange(3), np.arange(3), 1)
    assert outbox.batch.body.tolist() == [1, 1, 1]
    for word in (-1, 2, 256):
        with pytest.raises(ProtocolError, match="a word outside its vocabulary"):
            topic.send(np.arange(3), np.arange(3), word)
    with pytest.raises(ProtocolError, match="a word outside its vocabulary"):
        declare("test/no-words").send(np.arange(3), np.arange(3), 0)


def test_nothing_has_the_shape_of_a_message(declare: Declare) -> None:
    assert declare("test/vector", shape=(4,)).nothing().batch.body.shape == (0, 4)
    ragged = declare("test/any", shape=None).nothing().batch
    assert ragged.lengths is not None
    assert ragged.messages == 0


def test_topics_that_ship_say_who_learns_what() -> None:
    for topic in TOPICS.values():
        assert len(topic.learns.split()) > 3, topic.name


def test_topics_of_ideal_backends_are_named_so() -> None:
    backends = (aggregate, compare, score)
    ideal = frozenset().union(*(backend.IDEAL_TOPICS for backend in backends))
    assert {topic.name for topic in ideal} == {name for name in TOPICS if name.endswith("/ideal")}
