"""The weights of every epoch of the paper profile, as every device that takes part knows them.

They start from public coins, and follow from the opened sums by Adam. So whoever receives the sums
has them: an attacker needs nothing else to compute with the network.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lumos.audit.scene import Recorded
from lumos.audit.views import opened_sums
from lumos.device.coins import PublicCoins
from lumos.exchange.batch import Batch
from lumos.paper.tasks import STATISTICS
from lumos.paper.trainer import FullModel
from lumos.training.adam import Adam
from lumos.typing import Doubles, Floats, Ints


def network_of(recorded: Recorded) -> FullModel:
    """The network of a run with its first weights."""
    graph, config = recorded.graph, recorded.config
    classes = graph.class_count if config.train.task == "classify" else 0
    model = FullModel(config.model, graph.feature_count, classes)
    model.initialise(PublicCoins(recorded.run.about.seed).generator("weights"))
    return model


def weights_by_epoch(recorded: Recorded) -> Iterator[Doubles]:
    """[weights] with which the messages of each epoch were computed."""
    train = recorded.config.train
    adam = Adam(network_of(recorded).vector(), train.learning_rate, train.weight_decay)
    for total in opened_sums(recorded):
        yield adam.weights
        gradient, (_, count, _, _) = np.split(total, [-len(STATISTICS)])
        adam.step(gradient / count)


def rows_in(batch: Batch, sender: Ints, receiver: Ints, devices: int) -> Floats:
    """[pairs, width] what each sender told each receiver in one round; they must be there."""
    place = places_in(batch, sender, receiver, devices)
    rows: npt.NDArray[np.uint8] = np.ascontiguousarray(batch.body[place])
    return rows.view("<f4").astype(np.float32)


def places_in(batch: Batch, sender: Ints, receiver: Ints, devices: int) -> Ints:
    """[pairs] which messages of a round those of these pairs are.

    Raises:
        ValueError: a pair exchanged no message.
    """
    keys = batch.receiver * devices + batch.sender  # increasing: the order of a tape
    wanted = receiver * devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    if len(wanted) and not (len(keys) and np.array_equal(keys[place], wanted)):
        raise ValueError("a pair exchanged no message in this round")
    return place


def one_each(subject: Ints, most: int, generator: np.random.Generator) -> Ints:
    """Positions of at most `most` messages, each about another device, at random."""
    order = generator.permutation(len(subject))
    _, first = np.unique(subject[order], return_index=True)
    chosen: Ints = generator.permutation(order[first])[:most]
    return chosen
