"""What a run is likely to cost, before it starts: comparisons, and seconds on this machine."""

import time

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Spec
from lumos.crypto.group import Group, choose_group
from lumos.device.coins import CoinSource
from lumos.graph import Graph
from lumos.session.workers import cores
from lumos.trees.balancers import BALANCERS, DegreeSums
from lumos.trees.settings import TreeSettings

_TRIALS = 12


def expected_comparisons(graph: Graph, settings: TreeSettings) -> int:
    """How many comparisons a run is likely to need, as its balancer estimates."""
    return BALANCERS[settings.balancer].expected_comparisons(DegreeSums.of(graph.degrees), settings)


def expected_seconds(
    graph: Graph, settings: TreeSettings, coins: CoinSource = "simulated"
) -> float:
    """How long the secret comparisons of a run are likely to take; 0 where there are none.

    Times a few comparisons, unless nothing is compared in secret.
    """
    if settings.compare != "secure" or not BALANCERS[settings.balancer].compares:
        return 0.0
    group = choose_group(settings.group, simulated=coins == "simulated")
    return expected_comparisons(graph, settings) / comparisons_per_second(group, settings.workers)


def comparisons_per_second(group: Group, workers: int | None = None) -> float:
    """Comparisons of 8 bits in fresh sessions, both ends' work, times the number of workers."""
    spec = Spec(8)
    start = time.perf_counter()
    for _ in range(_TRIALS):
        sender, receiver = Sender(0, 1, group=group), Receiver(1, 0, group=group)
        sender.begin([(spec, 3)])
        receiver.begin([(spec, 5)])
        message = sender.step()
        while message is not None:
            reply = receiver.step(message)
            message = None if reply is None else sender.step(reply)
    rate = _TRIALS / (time.perf_counter() - start)
    return rate * (workers or cores())
