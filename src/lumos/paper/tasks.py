"""The two tasks: their losses and gradients, from the devices' embeddings.

Once per epoch a task computes the loss of every hosted device and its gradient with respect to the
embeddings and the head's weights. Labels and pairs stay on the device; only the messages of `link`
(section VI-C) and, later, sums leave it.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, logsigmoid

from lumos.device.shard import Shard
from lumos.errors import ProtocolError
from lumos.exchange.endpoint import Program
from lumos.exchange.messages import Batch, CheckMessages, Topic
from lumos.graph.facts import GraphPart
from lumos.paper.messages import ASK, EMBEDDING, EMBEDDING_GRADIENT, received_rows, send_rows
from lumos.training.split import Role
from lumos.typing import Flags, Ints


class NonNeighbours:
    """Private draws of non-neighbours: devices that are neither oneself nor a neighbour."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._free = shard.total - 1 - shard.degree
        # The r-th non-neighbour of a device is r plus the members m_0 < m_1 < … (neighbours and
        # itself) with m_i - i ≤ r. All devices are searched at once: keys rise from device to
        # device.
        me = np.arange(len(shard))
        owner = np.concatenate([shard.owner, me])
        member = np.concatenate([shard.neighbours, shard.devices])
        order = np.lexsort((member, owner))
        owner, member = owner[order], member[order]
        self._start = shard.offsets[:-1] + me
        rank = np.arange(len(member)) - self._start[owner]
        self._keys = owner * shard.total + (member - rank)

    def draw(self, counts: Ints, purpose: str, step: int) -> tuple[Ints, Ints]:
        """For each hosted device so many non-neighbours; none where there are none.

        Returns:
            positions of the devices, not decreasing, and ids of the non-neighbours.
        """
        shard = self._shard
        counts = np.where(self._free > 0, counts, 0)
        chance = shard.randomness.uniform_each(counts, purpose, step)
        rows = np.repeat(np.arange(len(shard)), counts)
        place = np.floor(chance * self._free[rows]).astype(np.int64)
        before = np.searchsorted(self._keys, rows * shard.total + place, side="right")
        return rows, place + before - self._start[rows]


STATISTICS = ("loss", "count", "validation", "validation count")
"""Numbers that each device adds to the masked sum beside its gradient."""


class Step(NamedTuple):
    """The result of one epoch for the hosted devices."""

    back: Tensor
    """[hosted, width] gradient of the summed loss with respect to the embeddings."""
    head: Callable[[bool], Tensor]
    """Gradient of the head: True for [hosted, weights] device by device, False for [weights]."""
    statistics: Tensor
    """[hosted, 4] see `STATISTICS`; higher is better in `validation`."""
    again: Callable[[int, Tensor], tuple[Tensor, Tensor]]
    """Gradients of one device's loss once more, for its position and another embedding [1, width]:
    [1, width] with respect to the embedding, and [weights] of the present head. What others sent
    is held constant."""


class Task(Protocol):
    """One task of one shard."""

    def step(self, embedding: Tensor, epoch: int) -> Program[Step]:
        """Losses and gradients of all hosted devices."""
        ...

    def keep(self, branches: Ints) -> None:
        """Go on with the neighbours at these slots: others are lost."""
        ...


class Classify:
    """Linear, softmax, cross-entropy (section VI-C). Labels stay private."""

    def __init__(self, part: GraphPart, head: torch.nn.Linear) -> None:
        self._labels = torch.from_numpy(part.labels.copy())
        roles = torch.from_numpy(part.roles)
        self._train, self._validation = roles == Role.TRAIN, roles == Role.VALIDATION
        self._head = head

    def keep(self, branches: Ints) -> None:
        """Do nothing: neighbours have no part in the loss."""

    def step(self, embedding: Tensor, epoch: int) -> Program[Step]:
        """Cross-entropy of the training devices; validation devices count correct predictions."""
        yield from ()
        every = slice(None)
        with torch.no_grad():
            logs, slope = self._slopes(embedding, every)
            known = self._labels.clamp(min=0)
            right = (logs.argmax(dim=1) == self._labels) & self._validation
            loss = -logs.gather(1, known[:, None]).squeeze(1) * self._train
            statistics = [loss, self._train, right, self._validation]

            def head(each: bool) -> Tensor:
                if each:
                    outer = torch.einsum("nc,nw->ncw", slope, embedding)
                    return torch.cat([outer.flatten(1), slope], dim=1)
                return _head_gradient(slope, embedding)

            return Step(
                slope @ self._head.weight,
                head,
                torch.stack([column.to(torch.float64) for column in statistics], dim=1),
                self._again,
            )

    def _slopes(self, embedding: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
        """[rows, classes] log probabilities, and gradients of the loss: 0 outside of training."""
        logs = log_softmax(self._head(embedding), dim=1)
        known = self._labels[rows].clamp(min=0)
        slope = logs.exp()  # softmax minus one-hot, for training devices
        slope[torch.arange(len(known)), known] -= 1
        slope *= self._train[rows][:, None]
        return logs, slope

    def _again(self, device: int, embedding: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            _, slope = self._slopes(embedding, slice(device, device + 1))
            return slope @ self._head.weight, _head_gradient(slope, embedding)


def _head_gradient(slope: Tensor, embedding: Tensor) -> Tensor:
    """[weights] of a linear head, from [devices, classes] and [devices, width]."""
    return torch.cat([(slope.T @ embedding).flatten(), slope.sum(dim=0)])


class Link:
    """Dot products of embeddings (section VI-C): kept neighbours near, sampled non-neighbours far.

    Device u asks each kept neighbour, and as many non-neighbours drawn afresh in every epoch, for
    their embeddings. Non-neighbours are drawn among those who are not its neighbours in the
    training graph, so a held-back edge may be drawn: not drawing it would reveal it.
    """

    def __init__(self, shard: Shard, keep: Flags, held_back: Ints) -> None:
        self._shard = shard
        self.keep(np.flatnonzero(keep))
        self._non_neighbours = NonNeighbours(shard)
        self._held_rows, self._held_peers = held_back.T
        many = np.bincount(self._held_rows, minlength=len(shard))
        rows, peers = self._non_neighbours.draw(many, "validation strangers", 0)
        self._held_out = (rows, peers)

    def keep(self, branches: Ints) -> None:
        """Ask the neighbours at these slots."""
        self._rows, self._peers = self._shard.owner[branches], self._shard.neighbours[branches]

    def step(self, embedding: Tensor, epoch: int) -> Program[Step]:
        """-log σ(h_u·h_v) over neighbours, -log σ(-h_u·h_v) over non-neighbours (errata 7).

        Pairs with devices that are lost do not count.
        """
        shard, width = self._shard, embedding.shape[1]
        rows, peers, signs, training = self._pairs(epoch)
        pairs = rows * shard.total + peers
        asked = (yield ASK.send(shard.ids_of(rows), peers, 0)).batch
        answering = shard.local(asked.receiver)
        askers = answering * shard.total + asked.sender
        inbox = yield send_rows(
            EMBEDDING,
            asked.receiver,
            asked.sender,
            embedding[answering],
            check=_check(EMBEDDING, width, lambda batch: _answered(shard, batch, pairs)),
        )
        # Pairs are sorted as inboxes are: by asker, then by peer.
        there = _answered(shard, inbox.batch, pairs)
        rows, peers, signs, training = rows[there], peers[there], signs[there], training[there]
        theirs = received_rows(EMBEDDING, inbox.batch, width)
        mine, sign = torch.from_numpy(rows), torch.from_numpy(signs)
        train = torch.from_numpy(training)
        own = embedding[mine]
        score = sign * (own * theirs).sum(dim=1)
        gain = logsigmoid(score)
        slope = (-sign * torch.sigmoid(-score) * train)[:, None]
        back = torch.zeros_like(embedding).index_add(0, mine, slope * theirs)
        here = torch.nonzero(train).flatten()
        inbox = yield send_rows(
            EMBEDDING_GRADIENT,
            shard.ids_of(rows[training]),
            peers[training],
            (slope * own)[here],
            check=_check(EMBEDDING_GRADIENT, width, lambda batch: _of_askers(shard, batch, askers)),
        )
        _of_askers(shard, inbox.batch, askers)
        received = received_rows(EMBEDDING_GRADIENT, inbox.batch, width)
        asked_for = torch.from_numpy(shard.local(inbox.receiver))
        back = back.index_add(0, asked_for, received)
        values = torch.stack([-gain * train, train, gain * ~train, ~train], dim=1)
        statistics = torch.zeros(len(shard), len(STATISTICS), dtype=torch.float64)
        statistics = statistics.index_add(0, mine, values.to(torch.float64))

        def again(device: int, embedding: Tensor) -> tuple[Tensor, Tensor]:
            pairs = torch.nonzero((mine == device) & train).flatten()
            others, signs = theirs[pairs], sign[pairs]
            slopes = -signs * torch.sigmoid(-signs * (embedding * others).sum(dim=1))
            own = (slopes[:, None] * others).sum(dim=0, keepdim=True)
            return own + received[asked_for == device].sum(dim=0, keepdim=True), torch.empty(0)

        return Step(back, _no_head(len(shard)), statistics, again)

    def _pairs(
        self, epoch: int
    ) -> tuple[Ints, Ints, npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Askers (positions), peers (ids), +1 or -1, and whether the pair is for training."""
        wanted = np.bincount(self._rows, minlength=len(self._shard))
        drawn_rows, drawn = self._non_neighbours.draw(wanted, "strangers", epoch)
        parts = [
            (self._rows, self._peers, 1, True),
            (drawn_rows, drawn, -1, True),
            (self._held_rows, self._held_peers, 1, False),
            (*self._held_out, -1, False),
        ]
        rows = np.concatenate([part[0] for part in parts])
        peers = np.concatenate([part[1] for part in parts])
        signs = np.concatenate([np.full(len(part[0]), part[2], np.float32) for part in parts])
        training = np.concatenate([np.full(len(part[0]), part[3]) for part in parts])
        order = np.lexsort((peers, rows))
        return rows[order], peers[order], signs[order], training[order]


def _pair_keys(shard: Shard, batch: Batch) -> Ints:
    """[messages] a number for each receiver and sender, increasing in the order of inboxes."""
    return shard.local(batch.receiver) * shard.total + batch.sender


def _answered(shard: Shard, batch: Batch, pairs: Ints) -> Flags:
    """[pairs] whether the peer answered: a pair may be there several times.

    Raises:
        ProtocolError: a message answers no question, or some answers of a device are missing.
    """
    arrived = _pair_keys(shard, batch)
    there = np.isin(pairs, arrived)
    if not np.array_equal(pairs[there], arrived):
        raise ProtocolError("link: an embedding is missing, or was not asked for")
    return there


def _of_askers(shard: Shard, batch: Batch, askers: Ints) -> None:
    """Raise `ProtocolError` for a gradient of a device that did not ask."""
    if not np.isin(_pair_keys(shard, batch), askers).all():
        raise ProtocolError("link: a gradient of a device that did not ask")


def _check(topic: Topic, width: int, senders: Callable[[Batch], object]) -> CheckMessages:
    """The check of rows whose senders `senders` checks."""

    def check(batch: Batch) -> None:
        senders(batch)
        received_rows(topic, batch, width)

    return check


def _no_head(hosted: int) -> Callable[[bool], Tensor]:
    return lambda each: torch.empty(hosted, 0) if each else torch.empty(0)
