"""A mechanism of another package, named in a run: opinions use it, labels do not."""

import pytest
from tests.encode.mechanisms.stranger import registered
from tests.strict.strictly import run_with_wire

import lumos
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.strict.settings import StrictSettings
from lumos.strict.topics import OPINION, SYMBOL


def test_devices_tell_opinions_by_it(sixty: Graph) -> None:
    with registered():
        _, wire = run_with_wire(sixty, mechanism="loud", opinion_epsilon=1.0, epochs=10)
    messages = wire.all_of(OPINION.name)
    assert len(messages) == 2 * 2 * sixty.edges  # two opinions, over both directions
    assert {len(message.body) for message in messages} == {3}
    assert {message.body[1:] for message in messages} == {b"\0\0"}
    assert len({message.body[0] for message in messages}) > 1
    # A label needs one value for each message: it has krr or digits, whatever opinions have.
    symbols = wire.all_of(SYMBOL.name)
    assert symbols
    assert {len(message.body) for message in symbols} == {1}


@pytest.mark.parametrize("name", ["oue", "multibit"])
def test_opinions_may_name_several_classes(sixty: Graph, name: str) -> None:
    result, wire = run_with_wire(sixty, mechanism=name, epochs=10)
    assert len(wire.all_of(OPINION.name)) == 4 * sixty.edges
    assert {len(message.body) for message in wire.all_of(SYMBOL.name)} == {1}
    assert result.promises


def test_it_can_be_named_as_a_setting() -> None:
    with registered():
        trained = lumos.train("demo:60", mechanism="loud", encoder_epochs=2, epochs=10)
    result = trained.summary()
    opinion = result["ledger"]["topics"][OPINION.name]
    assert opinion["bytes"] == 3 * opinion["messages"]


def test_a_name_that_is_not_registered_lists_the_others() -> None:
    with pytest.raises(UsageError, match="auto, krr, digits, oue, multibit, got 'loud'"):
        StrictSettings(mechanism="loud")
