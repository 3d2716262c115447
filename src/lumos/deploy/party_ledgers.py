"""What one party has counted in all phases: also in attempts that were given up."""

from typing import Any

from lumos.exchange.ledger import Ledger
from lumos.exchange.revealed_bits import most_pair_bits
from lumos.exchange.traffic import Booking
from lumos.storage import part_of
from lumos.typing import Arrays

_NOW, _EARLIER = "ledger/", "earlier/"
_TOTALS = ("sent", "received", "bytes_sent", "bytes_received")


class PartyLedgers:
    """The ledgers of one party, by name."""

    def __init__(self) -> None:
        self._earlier: list[Arrays] = []
        """Counts of the time before a device was left out of a phase that began again."""
        self._ledgers: dict[str, Ledger] = {}

    def begin(self, **ledgers: Ledger) -> None:
        """From now on it is counted in these, which have counted nothing."""
        self._ledgers = ledgers

    def give_up(self) -> None:
        """Keep what was counted; other ledgers begin."""
        self._earlier.append(self._counted())

    def arrays(self) -> Arrays:
        """Everything that was counted, for a snapshot."""
        now = self._counted()
        for number, counted in enumerate(self._earlier):
            now |= {f"{_EARLIER}{number}/{name}": counts for name, counts in counted.items()}
        return now

    def restore(self, arrays: Arrays) -> None:
        """Go on counting from `arrays`, in ledgers that have counted nothing."""
        numbers = {int(name.split("/")[1]) for name in arrays if name.startswith(_EARLIER)}
        self._earlier = [part_of(arrays, f"{_EARLIER}{number}/") for number in sorted(numbers)]
        for which, ledger in self._ledgers.items():
            ledger.load_whole_state_dict(part_of(arrays, f"{_NOW}{which}/"))

    def flows(self) -> dict[str, dict[str, int]]:
        """By topic: messages and bytes of all phases, and of attempts that were given up."""
        totals: dict[str, dict[str, int]] = {}
        for counted in (*self._earlier, self._counted()):
            for name, counts in counted.items():
                _, _, kind, rest = (*name.split("/", 3), "")[:4]
                topic, _, flow = rest.rpartition("|")
                if kind == "flows" and topic and flow in Booking._fields:
                    of_topic = totals.setdefault(topic, {})
                    of_topic[flow] = of_topic.get(flow, 0) + int(counts.sum())
        return totals

    def totals(self) -> dict[str, Any]:
        """Messages and bytes in all, and by topic, as plain numbers."""
        topics = self.flows()
        total = {
            flow: sum(of_topic.get(flow, 0) for of_topic in topics.values()) for flow in _TOTALS
        }
        return {**total, "topics": topics}

    def bits_given_up(self, which: str) -> float:
        """The most bits that a pair may have revealed in attempts that were given up."""
        answers = (part_of(counted, f"{_NOW}{which}/answers/") for counted in self._earlier)
        return sum(map(most_pair_bits, answers))

    def _counted(self) -> Arrays:
        """What was counted since a device was last left out of a phase that began again."""
        return {
            f"{_NOW}{which}/{name}": counts
            for which, ledger in self._ledgers.items()
            for name, counts in ledger.whole_state_dict().items()
        }
