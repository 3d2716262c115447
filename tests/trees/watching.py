"""Watching a run from outside: every round of a simulated federation, before it is delivered."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lumos.exchange.messages import Inbox, Outbox, Topic
from lumos.exchange.observer import LedgerReport
from lumos.exchange.transports.loopback import Router

Watch = Callable[[Topic, Sequence[Outbox]], None]


@contextmanager
def watching(watch: Watch, **replaced: Any) -> Iterator[None]:
    """Call `watch` when every party has handed in its outbox and nobody has been resumed.

    Args:
        replaced: names of the tree constructor to replace, as module__name=object.
    """
    route = Router.route

    def watched(self: Router, topic: Topic, outboxes: Sequence[Outbox]) -> list[Inbox]:
        watch(topic, outboxes)
        return route(self, topic, outboxes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "route", watched)
        for name, stand_in in replaced.items():
            patch.setattr("lumos.trees." + name.replace("__", "."), stand_in)
        yield


def sent(outboxes: Sequence[Outbox]) -> list[tuple[int, int, int]]:
    """(sender, receiver, body) of every message of a round."""
    return [
        (int(sender), int(receiver), int(body))
        for outbox in outboxes
        for sender, receiver, body in zip(
            outbox.batch.sender, outbox.batch.receiver, outbox.batch.body, strict=True
        )
    ]


def same_ledgers(first: LedgerReport, second: LedgerReport, topics: bool = True) -> None:
    """Every number and every array of two ledgers is equal."""
    assert vars(first).keys() == vars(second).keys()
    for name, value in vars(first).items():
        if name == "clear_traffic":  # depends on the number of shards
            continue
        other = vars(second)[name]
        if name == "topics":
            if topics:
                assert {key: vars(line) for key, line in value.items()} == {
                    key: vars(line) for key, line in other.items()
                }
        elif isinstance(value, np.ndarray):
            assert value.dtype == other.dtype, name
            assert np.array_equal(value, other), name
        elif isinstance(value, float):
            assert value == pytest.approx(other, rel=1e-12), name
        else:
            assert value == other, name
