"""A masked run of full length: 2 epochs of the encoder, 60 of trust, 2 of trees."""

from tests.strict.strictly import run_with_wire

from lumos.graph import Graph


def test_a_masked_run_of_sixty_devices(sixty: Graph) -> None:
    result, wire = run_with_wire(sixty, aggregate="secure")
    assert len(result.history) == 64
    assert len(wire.of("aggregate/sum")) == 64 + 2  # the matrix and the choice
    assert result.ledger.epsilon_collusion == 2.0
