"""Messages between partners: one each way in a round, or none where a partner is silent."""

import numpy as np

from lumos.device.shard import Shard
from lumos.exchange.endpoint import Program
from lumos.exchange.topic import Topic
from lumos.products.errors import WrongSender
from lumos.typing import Ints


class PairMail:
    """Sends to the partners of hosted devices, and receives from them.

    Args:
        shard: the hosted devices.
        partner: [hosted] id of each device's partner, or -1.
    """

    def __init__(self, shard: Shard, partner: Ints) -> None:
        self._shard = shard
        self.partner = partner

    def swap(self, topic: Topic, bodies: dict[int, bytes], size: int) -> Program[dict[int, bytes]]:
        """Send a message of `size` bytes from each row to its partner.

        Args:
            bodies: by row, what is sent; all of `size` bytes.

        Returns:
            By row, what its partner sent, for the rows that sent something themselves.
        """
        rows = np.array(sorted(bodies), np.int64)
        joined = b"".join(bodies[row] for row in rows.tolist())
        body = np.frombuffer(joined, np.uint8).reshape(len(rows), size)
        lengths = np.full(len(rows), size) if topic.shape is None else None
        inbox = yield topic.send(
            self._shard.devices[rows], self.partner[rows], body, lengths=lengths
        )
        to = self._shard.local(inbox.receiver)
        if (self.partner[to] != inbox.sender).any() or len(np.unique(to)) < len(to):
            raise WrongSender("a message came from a device that is not the partner, or twice")
        sizes = inbox.batch.lengths
        received = {}
        for place, row in enumerate(to.tolist()):
            if row in bodies:
                length = size if sizes is None else int(sizes[place])
                received[row] = inbox.body[place, :length].tobytes()
        return received
