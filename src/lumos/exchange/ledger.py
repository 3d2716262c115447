"""The ledger of one participant: what left and reached its devices, counted where it passed.

It sees only that participant's messages: one entry when they leave, one when they arrive. The
observer of a simulation adds the ledgers of all participants up (`lumos.exchange.observer`).
"""

from collections.abc import Collection, Sequence

import numpy as np

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.counts import AnswerCounts, Booking, Flows, FlowsByTopic, Spending
from lumos.exchange.messages import TOPICS, Batch, Topic
from lumos.storage import part_of
from lumos.typing import Arrays, Doubles, Ints, StatePart

ROUND = "|round"
"""In a checkpoint: rounds of the federation, one number; all else is by device."""

_CLEAR = "clear_"  # in a checkpoint: flows that really passed on ideal topics


class Ledger:
    """The ledger of one shard, or of the coordinator.

    Counts, per hosted device: messages and bytes by topic, rounds in which it took part, answers
    of secret comparisons and scores that it revealed, and ε spent on each receiver.

    Args:
        shard: the hosted devices; None for the coordinator.
        ideal: topics of ideal backends, permitted by whoever builds the endpoint. They are booked
            by formula, as the secret protocol would have sent them; what really passes on them is
            counted apart, as clear traffic. No other topic can be booked.
    """

    def __init__(self, shard: Shard | None, ideal: Collection[Topic] = ()) -> None:
        size = 1 if shard is None else len(shard)
        self.shard = shard
        self.ideal = frozenset(ideal)
        self.answers = AnswerCounts(shard)
        self.device_rounds: Ints = np.zeros(size, np.int64)
        """[hosted] rounds in which each device sent or received something."""
        self.round = 0
        """Rounds that the federation has completed."""
        self.lengths: set[int] = set()
        """Public bit lengths ℓ of the comparisons that were carried out."""
        self.groups: set[str] = set()
        """Names of the groups of comparisons and scores, which the bytes of their points follow."""
        self.scores = 0
        """Link scores that hosted devices took part in; one between two of them counts twice."""
        self._flows = Flows(size)
        self._clear = Flows(size)
        self._spending = Spending(shard)
        self._edge_spending = Spending(shard)
        self._present: list[Ints] = []

    def sent(self, topic: Topic, rows: Ints, batch: Batch) -> None:
        """Count messages that left, and the ε they spent. `rows`: positions of the senders."""
        self._passing(topic, rows).sent(topic, rows, batch.lengths)
        if batch.epsilon is not None:
            spending = self._edge_spending if topic.about_edges else self._spending
            spending.add(rows, batch.receiver, batch.epsilon, common=topic.common)

    def received(self, topic: Topic, rows: Ints, batch: Batch) -> None:
        """Count messages that arrived. `rows`: positions of the receivers."""
        self._passing(topic, rows).received(topic, rows, batch.lengths)

    def _passing(self, topic: Topic, rows: Ints) -> Flows:
        """Note who is present in the round; return the flows that count a topic."""
        if topic in self.ideal:
            return self._clear
        if self.shard is not None:
            self._present.append(rows)
        return self._flows

    def close_round(self) -> None:
        """The round is over."""
        if self._present:
            _add_to_rows(self.device_rounds, self._present, 1)
            self._present.clear()
        self.round += 1

    def require_permission(self, topic: Topic) -> None:
        """Raise `ProtocolError` unless `topic` may be booked here."""
        if topic not in self.ideal:
            raise ProtocolError(
                f"topic {topic.name!r} computes in the clear and is booked by formula, which this "
                "run does not permit; build its transport with the topic in `ideal`, or use "
                "`secure`"
            )

    def book(self, topic: Topic, rows: Ints, booking: Booking) -> None:
        """Book messages of an ideal backend by formula, once for each of `rows`."""
        self.require_permission(topic)
        self._flows.book(topic, rows, booking)

    def book_rounds(self, rows: Ints, rounds: int) -> None:
        """Book `rounds` further rounds in which the hosted devices `rows` take part."""
        _add_to_rows(self.device_rounds, [rows], rounds)

    def epsilon(self) -> tuple[Doubles, Doubles]:
        """[hosted] largest ε that each device spent on one receiver, and on all together.

        That of its own data; `edge_epsilon` counts messages about edges.
        """
        return self._spending.totals()

    def edge_epsilon(self) -> Doubles:
        """[hosted] ε that each device spent on its edges, over all receivers together."""
        return self._edge_spending.totals()[1]

    def flows(self) -> FlowsByTopic:
        """By topic name: messages and bytes, sent and received, per hosted device."""
        return self._flows.by_topic()

    def clear_flows(self) -> FlowsByTopic:
        """The same for what really passed on the ideal topics, in the clear."""
        return self._clear.by_topic()

    def state_dict(self, part: StatePart = "run") -> Arrays:
        """Flows and rounds so far; for `device` everything, under `flows/` and other names.

        A run that goes on from a checkpoint repeats its comparisons and releases: only a
        participant that may be restarted at any moment stores their counts.
        """
        if part == "device":
            sections = {
                "flows": self.state_dict(),
                "answers": self.answers.state_dict(),
                "spent": self._spending.state_dict(),
                "edges": self._edge_spending.state_dict(),
            }
            return {
                **{
                    f"{of}/{name}": rows
                    for of, own in sections.items()
                    for name, rows in own.items()
                },
                "lengths": np.array(sorted(self.lengths), np.int64),
                "groups": np.array(sorted(self.groups), np.str_),
                "scores": np.array(self.scores),
            }
        flows = {
            f"{name}|{prefix}{flow}": counts
            for prefix, by_topic in (("", self.flows()), (_CLEAR, self.clear_flows()))
            for name, of_topic in by_topic.items()
            for flow, counts in of_topic.items()
        }
        return {**flows, "|rounds": self.device_rounds.copy(), ROUND: np.array([self.round])}

    def fits(self, state: Arrays) -> bool:
        """Return whether this participant can continue from the part `run` of a state."""
        sizes = {ROUND: 1, "|rounds": len(self.device_rounds)}
        flows = {prefix + flow for prefix in ("", _CLEAR) for flow in Booking._fields}
        for key in state.keys() - sizes.keys():
            name, _, flow = key.rpartition("|")
            if name not in TOPICS or flow not in flows:
                return False
        return state.keys() >= sizes.keys() and all(
            counts.dtype == np.int64
            and counts.shape == (sizes.get(key, len(self.device_rounds)),)
            and counts.min(initial=0) >= 0
            for key, counts in state.items()
        )

    def load_state_dict(self, state: Arrays, part: StatePart = "run") -> None:
        """Continue from a state: flows and rounds are what they were then.

        With `device`, the ledger has counted nothing before.
        """
        if part == "device":
            self.answers.load_state_dict(part_of(state, "answers/"))
            self._spending.load_state_dict(part_of(state, "spent/"))
            self._edge_spending.load_state_dict(part_of(state, "edges/"))
            self.lengths = set(state["lengths"].tolist())
            self.groups = set(state["groups"].tolist())
            self.scores = int(state["scores"])
            state = part_of(state, "flows/")
        flows: FlowsByTopic = {}
        clear: FlowsByTopic = {}
        for key, counts in state.items():
            name, flow = key.rsplit("|", 1)
            if name:
                of = clear if flow.startswith(_CLEAR) else flows
                of.setdefault(name, {})[flow.removeprefix(_CLEAR)] = counts
        self._flows.load_state_dict(flows)
        self._clear.load_state_dict(clear)
        self.device_rounds = state["|rounds"].copy()
        self.round = int(state[ROUND][0])


def _add_to_rows(counts: Ints, parts: Sequence[Ints], amount: int) -> None:
    """Add `amount` once to each row that occurs in any of the parts, however often."""
    if sum(map(len, parts)) > len(counts) >> 2:
        occurs = np.zeros(len(counts), np.bool_)
        for rows in parts:
            occurs[rows] = True
        np.add(counts, amount, out=counts, where=occurs)
    else:
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        # Repeated rows write the same value.
        counts[rows] = counts[rows] + amount
