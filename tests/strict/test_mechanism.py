"""A mechanism of another package, named in a run."""

import json

import pytest
from tests.encode.mechanisms.stranger import registered
from tests.strict.strictly import run_with_wire

from lumos.cli.main import run
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.strict.settings import StrictSettings
from lumos.strict.topics import SYMBOL


def test_devices_release_by_it(sixty: Graph) -> None:
    with registered():
        _, wire = run_with_wire(sixty, mechanism="loud", epsilon=1.0)
    messages = wire.all_of(SYMBOL.name)
    assert len(messages) == 2 * sixty.edges
    assert {len(message.body) for message in messages} == {3}
    assert {message.body[1:] for message in messages} == {b"\0\0"}
    assert len({message.body[0] for message in messages}) > 1


def test_it_can_be_named_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--encoder-epochs", "2", "--epochs", "64", "--json"]
    with registered():
        assert run(["train", "demo:60", "--mechanism", "loud", *short]) == 0
    result = json.loads(capsys.readouterr().out)
    symbol = result["ledger"]["topics"][SYMBOL.name]
    assert symbol["bytes"] == 3 * symbol["messages"]


def test_a_name_that_is_not_registered_lists_the_others() -> None:
    with pytest.raises(UsageError, match="auto, krr, digits, oue, multibit, got 'loud'"):
        StrictSettings(mechanism="loud")
