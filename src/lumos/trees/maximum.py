"""Algorithm 3: find a device of largest workload. The coordinator sees flags and match results.

Neighbours compare first; a device with no strictly heavier neighbour is a candidate. Candidates
then play a tournament. Every answer is kept until one of the two workloads changes, and an answer
that became void only because a step was tried is valid again when the step is rejected.
"""

import numpy as np

from lumos.exchange.endpoint import Program
from lumos.exchange.topic import PUBLIC_ID, Door, Topic
from lumos.trees.tournament import Tournament

CANDIDATE = Topic(
    name="maximum/candidate",
    door=Door.CONTROL,
    vocabulary=("not a candidate", "a candidate, with a workload not yet matched"),
    coordinator="receives",
    learns="the coordinator learns that no neighbour of the device is heavier, or that one is",
)
MATCH = Topic(
    name="maximum/match",
    door=Door.CONTROL,
    dtype=np.int64,
    vocabulary=PUBLIC_ID,
    coordinator="sends",
    learns="two candidates learn that they are to compare",
)
RESULT = Topic(
    name="maximum/result",
    door=Door.CONTROL,
    vocabulary=("lighter", "level", "heavier"),
    coordinator="receives",
    learns="the coordinator learns which of two candidates is heavier, or that they are level",
)


def run_tournament(tournament: Tournament, lighter: int | None = None) -> Program[set[int]]:
    """The coordinator's part of Algorithm 3: update the candidates, then match until one is left.

    Args:
        lighter: the one device whose workload may have fallen since the last tournament.

    Returns:
        the devices that became candidates, ceased to be, or changed their workload.
    """
    inbox = yield CANDIDATE.nothing()
    tournament.update(inbox.sender.tolist(), (inbox.body != 0).tolist(), lighter)
    while True:
        matches = tournament.matches()
        if not matches:
            yield MATCH.nothing()
            return set(inbox.sender.tolist())
        both_ways = [*matches, *((second, first) for first, second in matches)]
        pairs = np.array(sorted(both_ways), np.int64)
        yield MATCH.from_coordinator(pairs[:, 0], pairs[:, 1])
        # The smaller id of a match reports; reports arrive in the order of the matches.
        results = yield RESULT.nothing()
        for (first, second), code in zip(matches, results.body.tolist(), strict=True):
            tournament.record(first, second, code - 1)
