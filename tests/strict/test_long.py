"""A masked run of full length: the default epochs, and the two sums after them."""

from tests.runs.running import listening

from lumos.graph import Graph
from lumos.runs.train import train


def test_a_masked_run_of_sixty_devices(sixty: Graph) -> None:
    with listening() as wire:
        result = train(sixty, aggregate="secure")
    assert len(result.history) == 1 + 16 + 1 + 3 + 40
    assert len(wire.of("aggregate/sum")) == 61 + 2  # the model selection and the temperature
    assert result.ledger.epsilon_collusion == 3.0
    assert result.ledger.edge_epsilon == 2 * 4.0
