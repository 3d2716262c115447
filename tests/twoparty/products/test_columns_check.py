"""A lying chooser: columns that belong to no choice of words, with and without the check.

The base transfers are left out: both ends get their seeds directly, as honest transfers give them.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.session_doubles import Stream, Toy
from tests.twoparty.products.conversation import LONG, Pair, random_inputs
from tests.twoparty.products.pairs import PairedRun, Problem, Watched

from lumos.crypto import entropy
from lumos.errors import CheckFailed
from lumos.secagg import AggregateSettings
from lumos.twoparty import products
from lumos.twoparty.products import Chooser, Multiplier, PairSession

WORDS, WIDTH = 200, 4
SID = bytes(range(40))
SIZE = products.column_bytes(WORDS)


@pytest.fixture(autouse=True)
def _seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "draw", Stream(request.node.name))


def bits_of(array: Any) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(array), axis=-1, bitorder="little")


def test_the_hash_is_that_of_its_description() -> None:
    randomness = np.random.default_rng(0)
    for size in (1, 7, 8, 25):
        matrix = randomness.integers(0, 256, (128, size), np.uint8)
        columns = randomness.integers(0, 256, (5, size + 16), np.uint8)
        right = bits_of(columns[:, :size]).astype(int) @ bits_of(matrix).T.astype(int) % 2
        right ^= bits_of(columns[:, size:])
        assert np.array_equal(bits_of(products.column_hashes(matrix, columns)), right)


def test_the_matrix_follows_from_every_bit_of_the_columns_and_from_the_session() -> None:
    columns = bytearray(entropy.draw(128 * SIZE))
    seen = {products.challenge(SID, bytes(columns)).tobytes()}
    seen.add(products.challenge(SID[:-1] + b"\xff", bytes(columns)).tobytes())
    places = range(0, 8 * len(columns), 997)
    for place in places:
        columns[place >> 3] ^= 1 << (place & 7)
        seen.add(products.challenge(SID, bytes(columns)).tobytes())
    assert len(seen) == 2 + len(places)
    ones = sum(int(bits_of(np.frombuffer(matrix, np.uint8)).sum()) for matrix in seen)
    total = len(seen) * 8 * 128 * (SIZE - 16)
    assert abs(ones - total / 2) < 6 * (total / 4) ** 0.5


# A chooser that lies, and one end of the transfers that it meets.


class Meeting:
    """Seeds of 128 base transfers, and a multiplier that took those of its secret s."""

    def __init__(self) -> None:
        self.seeds = np.frombuffer(entropy.draw(128 * 2 * 32), np.uint8).reshape(128, 2, 32)
        self.multiplier = Multiplier(WORDS, Toy())
        self.s = bits_of(self.multiplier._s)
        self.multiplier._seeds = self.seeds[np.arange(128), self.s].tobytes()
        self.multiplier._sid = SID
        self.t, self.other = (products.stretch(self.seeds[:, bit], SIZE) for bit in range(2))

    def columns(self, choices: np.ndarray) -> bytes:
        """u of [128, bytes] choices, one for each column."""
        return products.masked_columns(self.t, self.other, choices).tobytes()

    def proof(self, columns: bytes, choice: np.ndarray) -> bytes:
        """x, d as an honest chooser of `choice` [bytes] has them."""
        matrix = products.challenge(SID, columns)
        x = products.column_hashes(matrix, choice[None]).tobytes()
        return x + products.consistency(SID, x, products.column_hashes(matrix, self.t))

    def passes(self, message: bytes) -> bool:
        try:
            self.multiplier.extend(message)
        except CheckFailed:
            return False
        return True


def some_choice() -> np.ndarray:
    return np.frombuffer(entropy.draw(SIZE), np.uint8)


def other_in(choice: np.ndarray, flips: dict[int, int]) -> np.ndarray:
    """The same choice in all columns, but for one flipped row in some: {column: row}."""
    choices = np.tile(choice, (128, 1))
    for column, row in flips.items():
        choices[column, row >> 3] ^= 1 << (row & 7)
    return choices


def test_honest_columns_pass() -> None:
    for _ in range(20):
        meeting, choice = Meeting(), some_choice()
        columns = meeting.columns(np.tile(choice, (128, 1)))
        assert meeting.passes(columns + meeting.proof(columns, choice))


@pytest.mark.parametrize("guessed", [1, 2, 3])
def test_a_wrong_column_passes_only_if_a_bit_of_s_was_guessed(guessed: int) -> None:
    """A chooser that flips a row in c columns passes with probability 2^-c, and only if s is 0."""
    passed, sessions = 0, 256
    for _ in range(sessions):
        meeting, choice = Meeting(), some_choice()
        places = {17 * number + 3: 11 * number for number in range(guessed)}
        columns = meeting.columns(other_in(choice, places))
        right = not meeting.s[list(places)].any()
        assert meeting.passes(columns + meeting.proof(columns, choice)) == right
        passed += right
    assert stats.binomtest(passed, sessions, 2.0**-guessed).pvalue > 1e-6


def test_the_other_guess_passes_only_if_the_bit_is_one() -> None:
    seen = set()
    for _ in range(20):
        meeting, choice = Meeting(), some_choice()
        choices = other_in(choice, {5: 9})
        columns = meeting.columns(choices)
        matrix = products.challenge(SID, columns)
        x = products.column_hashes(matrix, choice[None])
        hashes = products.column_hashes(matrix, meeting.t)
        hashes[5] ^= (products.column_hashes(matrix, choices[5][None]) ^ x)[0]
        message = columns + x.tobytes() + products.consistency(SID, x.tobytes(), hashes)
        seen.add(int(meeting.s[5]))
        assert meeting.passes(message) == bool(meeting.s[5])
    assert seen == {0, 1}


@pytest.mark.parametrize("in_check_rows", [False, True])
def test_one_flipped_bit_anywhere_needs_a_guess(in_check_rows: bool) -> None:
    row = 8 * SIZE - 1 if in_check_rows else 0
    for _ in range(20):
        meeting, choice = Meeting(), some_choice()
        columns = meeting.columns(other_in(choice, {64: row}))
        assert meeting.passes(columns + meeting.proof(columns, choice)) == (not meeting.s[64])


@pytest.mark.parametrize("fixed", [False, True])
def test_a_challenge_that_is_known_beforehand_checks_nothing(
    fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken twin draws M without the columns: M e = e' is then solved before they are sent."""
    early = products.challenge(SID, bytes(128 * SIZE))
    if fixed:
        monkeypatch.setattr(products, "challenge", lambda sid, columns: early)
    passed = 0
    for _ in range(40):
        meeting, choice = Meeting(), some_choice()
        choices = other_in(choice, {number: number for number in range(128)})
        differs = choices ^ choice
        choices[:, -16:] ^= products.column_hashes(early, differs)  # h of each difference is 0
        columns = meeting.columns(choices)
        passed += meeting.passes(columns + meeting.proof(columns, choice))
    assert passed == (40 if fixed else 0)


# What the attack without a check reads, end to end.


class FlippingChooser(Chooser):
    """Flips row i in column i: entry i of the opened product is garbage exactly if s_i is 1."""

    __slots__ = ()

    def columns(self, sid: bytes, points: bytes) -> bytes:
        message = bytearray(super().columns(sid, points))
        size = products.column_bytes(len(self._chosen))
        for number in range(min(128, len(self._chosen))):
            message[number * size + (number >> 3)] ^= 1 << (number & 7)
        return bytes(message)


class Trusting(Multiplier):
    """The broken twin: it takes any columns."""

    def extend(self, columns: bytes) -> None:
        seeds = np.frombuffer(self._seeds, np.uint8).reshape(128, 32)
        received = np.frombuffer(columns[: -products.PROOF], np.uint8).reshape(128, SIZE)
        chosen = np.unpackbits(self._s, bitorder="little")[:, None]
        own = products.stretch(seeds, SIZE) ^ received * chosen
        self._rows = products.transposed(own, WORDS)


class Liar(PairSession):
    """A device that flips its columns."""

    def __init__(self, me: int, peer: int, *arguments: Any, **options: Any) -> None:
        super().__init__(me, peer, *arguments, **options)
        if me == 8:
            assert self._chooser is not None
            self._chooser.__class__ = FlippingChooser


def test_without_the_check_one_opened_sum_shows_s_and_with_it_every_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(products, "Multiplier", Trusting)
    chosen, numbers = random_inputs(WORDS, WIDTH)
    pair = Pair(chosen, LONG, group=Toy(), kind=Liar)
    one, two = pair.multiply(numbers)
    b_u, b_v = (bits.astype(np.uint64)[:, None] for bits in chosen)
    z_u, z_v = ((z.astype(np.int64) << 25).astype(np.uint64) for z in numbers)
    garbage = (one + two != b_u * z_v + b_v * z_u).any(axis=1)[:128]
    victim, liar = pair.ends[0]._multiplier, pair.ends[1]._chooser
    assert victim is not None
    assert liar is not None
    s = np.packbits(garbage, bitorder="little")
    assert np.array_equal(s, victim._s)
    # From now on: both pads of every row, and so Z from any correction.
    _, secret = random_inputs(WORDS, WIDTH, seed=9)
    pair.multiply(secret, 1)
    correction = np.frombuffer(pair.sent["correction 1 0"][0][:-16], "<u8").reshape(WORDS, WIDTH)
    row = 150  # one that was not flipped
    label = pair.ends[1]._label((1, 0), mine=False)
    zero_row = liar._rows ^ (s * chosen[1][:, None].astype(np.uint8))
    zero, other = (
        products.pads(rows, label, WIDTH, np.dtype("<u8"))[row] for rows in (zero_row, zero_row ^ s)
    )
    read = (correction[row] - zero + other).astype(np.int64) >> 25
    assert np.array_equal(read, secret[0])


def test_with_the_check_the_victim_closes_the_session() -> None:
    chosen, _ = random_inputs(WORDS, WIDTH)
    with pytest.raises(CheckFailed) as refused:
        Pair(chosen, LONG, group=Toy(), kind=Liar)
    assert not any(character.isdigit() for character in str(refused.value))


def test_the_run_goes_on_without_the_liars_pair_and_nobody_else_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sent_to_coordinator() -> tuple[np.ndarray, list[Any]]:
        watched = Watched()
        _, [total] = PairedRun(problem, shards=problem.total, toy=True, wrap=watched).run()
        sent = [
            (outbox.topic.name, sender, outbox.batch.body.shape[1:])
            for outbox in watched.sent
            if outbox.topic.coordinator
            for sender in outbox.batch.sender.tolist()
        ]
        return total, sorted(sent)

    problem = Problem()
    liar, victim = problem.pairs()[1]
    _, honest = sent_to_coordinator()

    class LiarInRun(PairSession):
        def __init__(self, me: int, *arguments: Any, **options: Any) -> None:
            super().__init__(me, *arguments, **options)
            if me == liar:
                assert self._chooser is not None
                self._chooser.__class__ = FlippingChooser

    monkeypatch.setattr("lumos.twoparty.product_sums.PairSession", LiarInRun)
    total, lied = sent_to_coordinator()
    others = [pair for pair in problem.pairs() if victim not in pair]
    fraction = AggregateSettings().fraction_bits
    assert np.array_equal(total, problem.truth(0, fraction, others, np.arange(problem.total)))
    assert lied == honest


# The check shows nothing of the choices.


class Bare(Chooser):
    """The broken twin: no random choices in the rows of the check."""

    def columns(self, sid: bytes, points: bytes) -> bytes:
        draw, entropy.draw = entropy.draw, bytes  # type: ignore[assignment]
        try:
            return super().columns(sid, points)
        finally:
            entropy.draw = draw


@pytest.mark.parametrize("kind", [Chooser, Bare])
@pytest.mark.parametrize("bit", [0, 1])
def test_the_claimed_sum_is_uniform_whatever_was_chosen(kind: type[Chooser], bit: int) -> None:
    """χ² of the bytes of x over many sessions; d follows from x and what the multiplier knows."""
    counts = np.zeros(256)
    for _ in range(160):
        chooser = kind(np.full(WORDS, bit, np.bool_), Toy())
        multiplier = Multiplier(WORDS, Toy())
        message = chooser.columns(SID, multiplier.points(SID, chooser.A))
        multiplier.extend(message)  # d is the digest that it computes itself
        x = np.frombuffer(message[-products.PROOF : -32], np.uint8)
        counts += np.bincount(x, minlength=256)
        if kind is Bare:  # whoever guesses all choices can test the guess
            guess = np.append(np.packbits([bit] * WORDS, bitorder="little"), np.zeros(16, np.uint8))
            matrix = products.challenge(SID, message[: -products.PROOF])
            assert np.array_equal(products.column_hashes(matrix, guess[None])[0], x)
            return
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2 / expected).sum() < stats.chi2.ppf(1 - 1e-6, 255)
