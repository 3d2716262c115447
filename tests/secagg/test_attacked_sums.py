"""Whole sums under attack: a coordinator that lies to each device as it likes, with colluders.

The adversary has every message to the coordinator, and all keys of the colluders' pairs. From these
bytes alone it reconstructs what it can. What it then knows is compared with the guarantee: of
groups that can be opened alone it has the sum, and of nobody else anything.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.audit import coalitions
from tests.audit.test_chosen_colluders import IN, LEFT_OUT, LOST, Told, random_lies
from tests.secagg.federation import Federation, drawn_graph, fixed_sum, shards_of

from lumos.device import COORDINATOR
from lumos.errors import Forged, UsageError
from lumos.exchange import EVERY_DOOR, Inbox, Outbox, Program
from lumos.exchange.transports.loopback import Loopback
from lumos.secagg import (
    AggregateSettings,
    FixedPoint,
    SecureAggregator,
    SecureCoordinator,
    masks,
    topics,
)
from lumos.secagg.masks import WORD
from lumos.secagg.shares import LIMBS, PAIR, SELF, ShareVault, reconstruct_secret

WIDTH = 4


class Lies(NamedTuple):
    """What a coordinator tells to whom."""

    views: np.ndarray
    """[devices, k] what each hears of its neighbours: `IN`, `LOST` or `LEFT_OUT`."""
    told: np.ndarray
    """[devices] who is told to open."""
    colluding: np.ndarray
    """[devices]."""


class Seen:
    """Messages to the coordinator, and the keys of all pairs: the adversary may read colluders'."""

    def __init__(self) -> None:
        self.bodies: dict[str, dict[int, np.ndarray]] = {}
        self.keys: Any = None
        self.pairs: Any = None
        self.of: Any = None


class Tapped(SecureAggregator):
    """Devices that follow the protocol; their keys are copied for the adversary."""

    seen: Seen

    def _values(self, keys: Any) -> Any:
        seen = type(self).seen
        seen.keys, seen.pairs = keys, self._pairs
        seen.of = masks.SumId(self._run, self._pairs.number - 1)
        return super()._values(keys)


class Liar(SecureCoordinator):
    """Speaks its own lines of the protocol, and opens nothing itself."""

    seen: Seen
    lies: Lies

    def sum(self, width: int, noise: Any = None) -> Program[Any]:
        yield from self._heard(topics.WRAPPED)
        of, (views, told, colluding) = self._graph.of(np.arange(self._total)), self.lies
        yield self._say(topics.LEFT_OUT, views == LEFT_OUT, np.ones_like(told))
        arrived = yield from self._heard(topics.MASKED)
        sent = np.isin(np.arange(self._total), arrived.sender)
        yield self._say(topics.LOST, (views == LOST) & sent[:, None], told & sent)
        alive = yield from self._heard(topics.ALIVE)
        yield self._confirm(alive, of, views, colluding)
        yield from self._heard(topics.REVEAL)
        yield topics.SUM.nothing()
        return None

    def _heard(self, topic: Any) -> Program[Inbox]:
        inbox = yield topic.nothing()
        lengths = inbox.batch.lengths
        if lengths is None:
            lengths = np.zeros(0, np.int64)
        rows = zip(inbox.sender.tolist(), inbox.body, lengths, strict=True)
        self.seen.bodies[topic.name] = {sender: body[:size] for sender, body, size in rows}
        return inbox

    def _say(self, topic: Any, named: np.ndarray, to: np.ndarray) -> Outbox:
        """To each receiver the neighbours that are named to it, and its own id."""
        receivers = np.flatnonzero(to)
        rows, slots = np.nonzero(named & to[:, None])
        body = np.append(self._graph.of(np.arange(self._total))[rows, slots], receivers)
        receiver = np.append(rows, receivers)
        return topic.send(np.full(len(receiver), COORDINATOR), receiver, body)

    def _confirm(self, alive: Inbox, of: Any, views: Any, colluding: Any) -> Outbox:
        """To each device every word that fits what it was told: real ones, and all of colluders."""
        k = self.parameters.neighbours
        words = np.zeros((self._total, k, WORD), np.uint8)
        words[alive.sender] = alive.body.reshape(-1, k, WORD)
        keys, pairs = self.seen.keys, self.seen.pairs
        for liar in np.flatnonzero(colluding).tolist():
            low = (liar < of[liar])[:, None]
            pair = pairs.of[liar]
            said = np.where(low, keys.word_up[pair], keys.word_down[pair])
            words[liar] = said.astype("<u4").view(np.uint8).reshape(k, WORD)
        heard = words[of, k - 1 - np.arange(k)] * (views == IN)[:, :, None]
        receivers = alive.sender
        body = np.hstack(
            [
                np.bitwise_xor.reduce(heard, axis=1),
                np.packbits(heard.any(axis=2), axis=1, bitorder="little"),
            ]
        )[receivers]
        return topics.CONFIRMED.send(
            np.full(len(receivers), COORDINATOR),
            receivers,
            body,
            lengths=np.full(len(receivers), body.shape[1]),
        )


class Adversary:
    """What follows from what was seen, and nothing else.

    Args:
        graph: the mask graph.
        threshold: t.
        lies: what was told.
        seen: the messages; of the keys those of colluders are read.
    """

    def __init__(self, graph: Any, threshold: int, lies: Lies, seen: Seen) -> None:
        self.graph, self.t, self.lies, self.seen = graph, threshold, lies, seen
        self.k = graph.neighbours
        self.of = graph.of(np.arange(graph.total))
        self.keys: list[dict[int, np.ndarray]] = [{}, {}]
        for which in (SELF, PAIR):
            self._reconstruct(which)

    def _values(self, owner: int, which: int) -> tuple[np.ndarray, np.ndarray]:
        """[k, limbs] the values of holders of a device's secret, and [k] of whom they are known."""
        values, known = np.zeros((self.k, LIMBS), np.uint16), np.zeros(self.k, np.bool_)
        given = self.seen.bodies["aggregate/reveal"]
        for slot, holder in enumerate(self.of[owner].tolist()):
            if self.lies.colluding[holder]:
                pair = self.seen.pairs.of[owner, slot]
                of_low = owner < holder
                values[slot] = (self.seen.keys.values_up if of_low else self.seen.keys.values_down)[
                    pair, which
                ]
                known[slot] = True
            elif holder in given:
                there = self.k - 1 - slot
                views = self.lies.views[holder]
                if views[there] != (IN, LOST)[which]:
                    continue
                position = int((views[:there] != LEFT_OUT).sum())
                shares = given[holder].view("<u2").reshape(-1, LIMBS)
                values[slot], known[slot] = shares[position], True
        return values, known

    def _reconstruct(self, which: int) -> None:
        name = ("aggregate/masked", "aggregate/wrapped")[which]
        size = (WIDTH * FIXED.wire, masks.SEED * self.k)[which]
        for owner, body in self.seen.bodies[name].items():
            if self.lies.colluding[owner]:
                continue
            present = (
                self.lies.views[owner] != LEFT_OUT if which == SELF else np.ones(self.k, np.bool_)
            )
            bound, published = np.split(body[size:], [masks.COMMITMENT])
            corrections = np.zeros((1, self.k - self.t, LIMBS), np.uint16)
            found = np.ascontiguousarray(published).view("<u2").reshape(-1, LIMBS)
            corrections[0, : len(found)] = found
            values, known = self._values(owner, which)
            known &= present
            # With fewer than t values the rest are guessed: zero.
            answering = known | (present & (known.sum() < self.t))
            secret = reconstruct_secret(
                values[None], corrections, present[None], answering[None], self.t
            )
            here = np.array([owner])
            fits = np.array_equal(masks.commitments(secret, here, which, self.seen.of)[0], bound)
            assert fits == (known.sum() >= self.t)
            if fits:
                self.keys[which][owner] = masks.keys_of(secret, here, which, self.seen.of)[0]

    def _seed(self, one: int, slot: int) -> np.ndarray | None:
        """The seed of a pair, if an end colludes or its pair secret is open."""
        other = int(self.of[one, slot])
        if self.lies.colluding[one] or self.lies.colluding[other]:
            return np.asarray(self.seen.keys.seed[self.seen.pairs.of[one, slot]])
        for end, there in ((one, slot), (other, self.k - 1 - slot)):
            if end in self.keys[PAIR]:
                sealed = self.seen.bodies["aggregate/wrapped"][end][: masks.SEED * self.k]
                wrapped = np.ascontiguousarray(sealed).view("<u4").reshape(1, self.k, 4)
                seeds = masks.wrap(wrapped.astype(np.uint32), self.keys[PAIR][end][None])
                return np.asarray(seeds[0, there])
        return None

    def bare(self, device: int) -> tuple[np.ndarray, set[int]]:
        """A vector without all masks that are known, and with whom the others are shared."""
        body = self.seen.bodies["aggregate/masked"][device][: WIDTH * FIXED.wire]
        words, hidden = FIXED.unpack(body)[None].copy(), set()
        nobody, here = np.array([masks.NOBODY]), np.array([0])
        if device in self.keys[SELF]:
            masks.add_masks(words, self.keys[SELF][device][None], nobody, here)
        for slot, other in enumerate(self.of[device].tolist()):
            if self.lies.views[device, slot] == LEFT_OUT:
                continue
            seed = self._seed(device, slot)
            if seed is None:
                hidden.add(other)
                continue
            low, high = np.array([min(device, other)]), np.array([max(device, other)])
            key = masks.pair_keys_of(seed[None], low, high, self.seen.of)
            adding = device < other
            masks.add_masks(words, key, *((nobody, here) if adding else (here, nobody)))
        return words[0], hidden

    def groups(self) -> set[frozenset[int]]:
        """Sets of vectors with open self masks, out of which no unknown mask leads."""
        found = set()
        for start in self.keys[SELF]:
            group: set[int] = set()
            new = {start}
            while new:
                group |= new
                if not new <= self.keys[SELF].keys():
                    break
                new = set().union(*(self.bare(v)[1] for v in new)) - group
            else:
                found.add(frozenset(group))
        return found

    def cancels(self, group: frozenset[int]) -> bool:
        """Whether each unknown mask within a group was added at one end and taken at the other."""
        hidden = {device: self.bare(device)[1] for device in group}
        return all(one in hidden[other] for one in group for other in hidden[one])

    def total(self, group: frozenset[int]) -> np.ndarray:
        """The sum over a group."""
        words = sum(self.bare(device)[0] for device in group)
        return FIXED.decode(FIXED.unpack(FIXED.pack(np.asarray(words, FIXED.dtype))))


FIXED = FixedPoint.of(AggregateSettings(), 12)
CASES = [(9, 4, 3), (12, 6, 4), (12, 6, 5), (9, 8, 6)]


def attacked(total: int, k: int, t: int, lies: Lies, vectors: np.ndarray) -> Adversary:
    seen = Seen()
    Federation(
        AggregateSettings(neighbours=k, threshold=t, minimum=2),
        aggregator=type("Tapped", (Tapped,), {"seen": seen}),
        coordinator=type("Liar", (Liar,), {"seen": seen, "lies": lies}),
    ).run([vectors])
    return Adversary(drawn_graph(total, k), t, lies, seen)


@pytest.mark.parametrize("case", range(4))
def test_from_real_messages_a_liar_gets_what_the_model_says_and_no_more(case: int) -> None:
    """Random lies and coalitions; the model is that of `tests/audit/test_chosen_colluders.py`."""
    total, k, t = CASES[case]
    assert FixedPoint.of(AggregateSettings(), total) == FIXED
    graph = drawn_graph(total, k)
    opened = fewer = 0
    for seed in range(24):
        random = np.random.default_rng([case, seed])
        colluding = random.random(total) < 0.2
        lies = Lies(*random_lies(graph, colluding, random), colluding)
        if seed % 2:  # one story for all: a group, and no other honest device
            chosen = coalitions.opened_alone(graph, t, colluding, random.random(total) < 0.9)
            beside = (chosen | colluding)[graph.of(np.arange(total))]
            lies = Lies(np.where(beside, IN, random.choice([LOST, LEFT_OUT])), chosen, colluding)
        vectors = random.normal(scale=20, size=(total, WIDTH))
        adversary = attacked(total, k, t, lies, vectors)
        model = Told(graph, t, colluding, lies.views, lies.told)
        honest = np.flatnonzero(~colluding).tolist()
        assert set(adversary.keys[SELF]) == {v for v in honest if model.opened[v]}
        assert set(adversary.keys[PAIR]) == {v for v in honest if model.pair_opened[v]}
        groups = adversary.groups()
        assert groups == model.groups()
        for group in groups:
            truth = fixed_sum(vectors[sorted(group)], 32)
            if adversary.cancels(group):
                assert np.array_equal(adversary.total(group), truth)
                opened, fewer = opened + 1, fewer + (len(group) < len(honest))
            else:
                assert not (adversary.total(group) == truth).any()
            if not coalitions.surrounded(graph, 2 * t - k, colluding).any():
                assert len(group) >= k - t + 2
    assert opened > 0
    assert fewer > 0


def unconfirmed(shard: Any, opening: Any, in_sum: Any, *rest: Any) -> Program[Any]:
    """The broken twin of `confirm`: whoever was told to open does."""
    yield topics.ALIVE.nothing()
    yield topics.CONFIRMED.nothing()
    return opening


def test_without_confirmations_a_liar_has_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lies of `tests/audit/test_chosen_colluders.py`, told to real devices: k = 8, t = 5."""
    total, k, t = 9, 8, 5
    of = drawn_graph(total, k).of(np.arange(total))
    views = np.full((total, k), IN)
    views[0, np.isin(of[0], [5, 6, 7])] = LEFT_OUT
    lies = {5: [1, 2, 3], 6: [2, 3, 4], 7: [3, 4, 1], 1: [2, 4], 2: [1, 4], 3: [1], 4: [2, 3]}
    for device, lost in lies.items():
        views[device, np.isin(of[device], lost)] = LOST
    told = Lies(views, np.ones(total, np.bool_), np.arange(total) == 8)
    vectors = np.random.default_rng(0).normal(scale=20, size=(total, WIDTH))
    assert not attacked(total, k, t, told, vectors).groups()
    monkeypatch.setattr("lumos.secagg.device.confirm", unconfirmed)
    broken = attacked(total, k, t, told, vectors)
    assert frozenset({0}) in broken.groups()
    assert np.array_equal(broken.total(frozenset({0})), FIXED.rounded(vectors[0]))


class Forging(SecureCoordinator):
    """Has t - 1 real words for the victim, and makes up the last one from what it knows."""

    forge: Any
    old: np.ndarray | None = None

    def _relay(self, alive: Any, words: Any) -> Outbox:
        k, t = self.parameters.neighbours, self.parameters.threshold
        honest = super()._relay(alive, words)
        of = self._graph.of(np.arange(self._total))
        sent = words.reshape(self._total, k, WORD)
        mirrored = k - 1 - np.arange(k)
        for_victim = sent[of[VICTIM], mirrored]
        missing = t - 1  # the slot whose word is withheld from the adversary
        known = for_victim.copy()
        known[missing:] = 0
        guess = type(self).forge(self, sent, for_victim, of, missing)
        self.old = for_victim.copy()
        if guess is None:
            return honest
        body = honest.batch.body.copy()
        body[VICTIM, :WORD] = np.bitwise_xor.reduce(known, axis=0) ^ guess
        body[VICTIM, WORD:] = np.packbits(np.arange(k) <= missing, bitorder="little")
        return topics.CONFIRMED.send(
            honest.batch.sender, honest.batch.receiver, body, lengths=honest.batch.lengths
        )


VICTIM, RING, K, T = 1, 12, 6, 5
FORGERIES = {
    "no word": lambda self, sent, right, of, slot: np.zeros(WORD, np.uint8),
    "another's word for the victim": lambda self, sent, right, of, slot: right[0],
    "the victim's own word for that neighbour": lambda self, sent, right, of, slot: sent[
        VICTIM, slot
    ],
    "that neighbour's word for another": lambda self, sent, right, of, slot: sent[
        of[VICTIM, slot], slot
    ],
    "all words of that neighbour for others, added up": lambda self, sent, right, of, slot: (
        np.bitwise_xor.reduce(
            np.delete(sent[of[VICTIM, slot]], sent.shape[1] - 1 - slot, axis=0), axis=0
        )
    ),
    "the word of the sum before": lambda self, sent, right, of, slot: (
        None if self.old is None else self.old[slot]
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_the_last_word_cannot_be_made_from_others(name: str) -> None:
    """A device with t - 1 confirmations stops; with the word that fits it would open."""
    forging = type("Forging", (Forging,), {"forge": staticmethod(FORGERIES[name])})
    settings = AggregateSettings(neighbours=K, threshold=T)
    with pytest.raises(Forged, match="words that confirm"):
        Federation(settings, coordinator=forging).run([np.ones((RING, WIDTH))] * 2)


def test_with_the_word_that_fits_the_victim_opens() -> None:
    """The forgeries above fail by their word alone."""
    right = staticmethod(lambda self, sent, right, of, slot: right[slot])
    forging = type("Forging", (Forging,), {"forge": right})
    federation = Federation(AggregateSettings(neighbours=K, threshold=T), coordinator=forging)
    _, [total] = federation.run([np.ones((RING, WIDTH))])
    assert np.array_equal(total, np.full(WIDTH, RING))
    assert len(federation.bodies("aggregate/reveal")) == RING


class Swapping(SecureCoordinator):
    """Takes what one device published for what another did, or the other way round."""

    which: int | None

    def _reconstructed(self, devices: Any, which: int, published: Any, *rest: Any) -> Any:
        if which == self.which:
            size = masks.COMMITMENT
            published = np.hstack([published[:, :size], np.roll(published[:, size:], 1, axis=0)])
        return super()._reconstructed(devices, which, published, *rest)


@pytest.mark.parametrize("which", [None, SELF, PAIR])
def test_corrections_of_another_device_open_nothing(which: int | None) -> None:
    """Two devices are lost. The first holder of one does not answer, so corrections are needed."""
    ring = drawn_graph(RING, 8).order
    stage = np.full(RING, topics.Stage.NEVER, np.int8)
    stage[ring[[0, 6]]] = topics.Stage.MASKED
    stage[ring[1]] = topics.Stage.REVEAL
    federation = Federation(
        AggregateSettings(neighbours=8, threshold=5, minimum=3),
        coordinator=type("Swapping", (Swapping,), {"which": which}),
    )
    rounds = [np.ones((RING, WIDTH))], [stage]
    if which is None:
        assert np.array_equal(federation.run(*rounds)[1][0], np.full(WIDTH, RING - 2))
        return
    with pytest.raises(Forged, match="bound itself"):
        federation.run(*rounds)


class Kept(SecureAggregator):
    """Keeps a reference to what devices hold, as whoever seizes them finds it."""

    vaults: list[ShareVault]

    def _values(self, keys: Any) -> Any:
        own, vault = super()._values(keys)
        type(self).vaults.append(vault)
        return own, vault


@pytest.mark.parametrize("silent", [topics.Stage.MASKED, topics.Stage.ALIVE, topics.Stage.REVEAL])
def test_after_a_sum_holders_have_no_share_of_it(silent: topics.Stage) -> None:
    """Also of those that were not asked for: whoever seizes all devices later finds none."""
    stage = np.full(RING, topics.Stage.NEVER, np.int8)
    stage[3] = silent
    vaults: list[ShareVault] = []
    Federation(
        AggregateSettings(neighbours=K, threshold=T, minimum=3),
        aggregator=type("Kept", (Kept,), {"vaults": vaults}),
    ).run([np.ones((RING, WIDTH))], [stage])
    assert len(vaults) == 1
    assert not vaults[0]._values.any()


def test_missed_sums_are_never_negative() -> None:
    def devices(shard: Any, endpoint: Any) -> Program[None]:
        aggregator = SecureAggregator(shard, endpoint)
        yield from aggregator.setup()
        aggregator.skip(-1)

    def coordinator(endpoint: Any) -> Program[None]:
        yield from SecureCoordinator(RING, endpoint).setup()

    with pytest.raises(UsageError, match="keys never come back"):
        Loopback(shards_of(RING, 1), EVERY_DOOR).run(devices, coordinator)
