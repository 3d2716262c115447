"""What a party sees depends on its own vector and the level only: statistics with stated power.

For a fixed own vector and a fixed level, views for two vectors of the other party are put through
the two tests of `tests/distinguisher.py`; each has broken twins that it must catch. The features
are chosen by someone who knows the mechanism: raw bits of tables, tables XOR a table of the same
session whose content is known, neighbouring entries of these, what R reads, R's share, and points
compared with multiples of A.

The entropy of these tests is seeded by the test's name, so their result never flickers.
"""

import numpy as np
import pytest
from tests.distinguisher import SAMPLES, TWIN_SAMPLES, balanced, bits_of, distinguish, split
from tests.narrow import present
from tests.session_doubles import Toy

from lumos.crypto import entropy
from lumos.crypto.groups import ED25519
from lumos.twoparty import lookup
from lumos.twoparty import score as score_sender
from lumos.twoparty.lookup import unmask
from lumos.twoparty.score import LevelSpec, Score, ScoreReceiver, ScoreSender, Shifted, level_table
from lumos.twoparty.session import crc8

pytestmark = pytest.mark.usefixtures("seeded")

SPEC = LevelSpec(width=2, bits=3, ring_bits=5, thresholds=(-2, 3))
PRODUCTS = SPEC.width * SPEC.coordinate_lookup.table_bytes
LEVELS = SPEC.level_lookup.table_bytes
SESSION = 50
"""Scores of a session that are looked at; one more before them is the reference of the others."""

V = (2, 1)
XS = ((1, 1), (3, -2))  # products 3 and 4: level 2
OTHER = ((1, 1), (-3, 1))  # products 3 and -5: levels 2 and 0


def numbers(values, count):
    """[values, count] bits."""
    return (np.asarray(values)[:, None] >> np.arange(count) & 1).astype(np.uint8)


def cut(message, size):
    """[scores, 8 · size] bits of a message, its check left out."""
    return bits_of(message[:-1]).reshape(-1, 8 * size)


def neighbouring(tables):
    """Entries XOR their neighbours. Of bit 0 of s·v + r that is bit 0 of s, whatever r."""
    return tables ^ np.roll(tables, 1, axis=1)


def receiver_rows(products, levels, entries, shares, pads, results):
    """Views of R of one session, but for its first score, the reference.

    Args:
        products, levels: the messages with the tables.
        entries: [scores, 2] what R read from the first; shares: [scores] their sums.
        pads: [scores] bytes of all pads that R holds.
        results: [scores] the levels.
    """
    first, second = cut(products, PRODUCTS), cut(levels, LEVELS)
    against = first ^ first[0]
    read = np.hstack([numbers(column, 5) for column in np.transpose(entries)])
    share = numbers(shares, 5)
    held = bits_of(b"".join(pads)).reshape(len(first), -1)
    # The level table turned so that R's own share comes first: what is left is S's level by
    # distance, under pads.
    turned = [
        np.concatenate([np.roll(half, -own) for half in row.reshape(2, 32)])
        for row, own in zip(second, shares, strict=True)
    ]
    parts = [
        first,
        against,
        neighbouring(against),
        second,
        second ^ second[0],
        np.array(turned),
        read,
        read ^ read[0],
        share,
        read[:, :5] ^ share,
        held,
        numbers(results, 2),
    ]
    return np.hstack(parts)[1:]


def read_products(receiver, products):
    """What R reads from the tables of products: [scores, 2]."""
    size = SPEC.coordinate_lookup.table_bytes
    found = []
    for place, score in enumerate(receiver._tasks):
        own = products[place * PRODUCTS : (place + 1) * PRODUCTS]
        found.append(
            [
                unmask(
                    SPEC.coordinate_lookup, own[i * size : (i + 1) * size], score.kept[i], V[i] % 8
                )
                for i in range(2)
            ]
        )
    return found


def held_pads(receiver):
    return [b"".join(pad for pads in score.kept for pad in pads) for score in receiver._tasks]


def receiver_views(labels, group, candidates=XS, shift=lambda: None):
    """Views of R with vector V against candidates[label], through whole sessions."""
    views = []
    for start in range(0, len(labels), SESSION):
        own = labels[start : start + SESSION]
        s, r = ScoreSender(3, 8, group=group), ScoreReceiver(8, 3, group=group)
        items = [candidates[0], *(candidates[label] for label in own)]
        shifts = [shift() for _ in items]
        s.begin(
            [
                (SPEC, vector if by is None else Shifted(vector, by))
                for vector, by in zip(items, shifts, strict=True)
            ]
        )
        r.begin([(SPEC, V)] * len(items))
        points = r.step(s.step())
        pads = held_pads(r)
        products = s.step(points)
        assert products is not None
        entries = read_products(r, products)
        asked = r.step(products)
        shares = [score.share for score in r._tasks]
        pads = [one + two for one, two in zip(pads, held_pads(r), strict=True)]
        levels = s.step(asked)
        s.step(r.step(levels))
        assert any(by is not None for by in shifts) or s.results == r.results
        views.append(receiver_rows(products, levels, entries, shares, pads, r.results))
    return np.vstack(views)


def simulated_receiver_views(count, group):
    """The simulator: given only V and level 2, without s and without a."""
    views = []
    for start in range(0, count, SESSION):
        size = 1 + min(SESSION, count - start)
        r = ScoreReceiver(8, 3, group=group)
        r.begin([(SPEC, V)] * size)
        r.step(entropy.draw(16) + group.pair()[1])
        pads = held_pads(r)
        # Uniform tables: what R reads from them is uniform.
        body = entropy.draw(size * PRODUCTS)
        products = body + bytes([crc8(r._check, body)])
        entries = read_products(r, products)
        r.step(products)
        shares = [score.share for score in r._tasks]
        pads = [one + two for one, two in zip(pads, held_pads(r), strict=True)]
        body = b""
        for score in r._tasks:
            # Uniform, but for the entry that R opens: it holds the level.
            table = bytearray(entropy.draw(LEVELS))
            wrong = unmask(SPEC.level_lookup, bytes(table), score.kept[0], score.share) ^ 2
            for output in (0, 1):
                place = output * SPEC.level_lookup.stride + (score.share >> 3)
                table[place] ^= (wrong >> output & 1) << (score.share & 7)
            body += bytes(table)
        levels = body + bytes([crc8(r._check, body)])
        r.step(levels)
        assert r.results == [2] * size
        views.append(receiver_rows(products, levels, entries, shares, pads, r.results))
    return np.vstack(views)


@pytest.mark.parametrize(
    "curve", [pytest.param(True, marks=pytest.mark.long), False], ids=["curve", "toy"]
)
def test_the_receiver_cannot_tell_s(curve, toy):
    # In full on the toy group, where a table costs less; a fifth of it on the curve.
    group, samples = (ED25519, SAMPLES // 5) if curve else (toy, SAMPLES)
    labels = balanced(samples)
    views = receiver_views(labels, group)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict
    simulated = simulated_receiver_views(samples // 2, group)
    verdict = distinguish(views[: samples // 2], simulated)
    assert not verdict.told_apart, verdict


def test_the_views_show_the_level(toy):
    # The same test sees what the protocol does reveal.
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy, OTHER), labels)).told_apart


def test_a_uniform_shift_hides_the_level_from_the_receiver(toy):
    randomness = np.random.default_rng(2)
    labels = balanced(SAMPLES)
    views = receiver_views(labels, toy, OTHER, lambda: int(randomness.integers(3)))
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict


def test_twin_level_table_unshifted(monkeypatch, toy):
    # The shift is drawn but does not reach the table.
    def unshifted(spec, share, shift):
        return level_table(spec, share, 0)

    monkeypatch.setattr(score_sender, "level_table", unshifted)
    randomness = np.random.default_rng(2)
    labels = balanced(TWIN_SAMPLES)
    views = receiver_views(labels, toy, OTHER, lambda: int(randomness.integers(3)))
    assert distinguish(*split(views, labels)).told_apart


def test_twin_level_table_without_the_senders_share(monkeypatch, toy):
    # Levels of R's share and not of the product: found as wrong levels.
    monkeypatch.setattr(
        score_sender, "level_table", lambda spec, _, shift: level_table(spec, 0, shift)
    )
    s, r = ScoreSender(3, 8, group=toy), ScoreReceiver(8, 3, group=toy)
    s.begin([(SPEC, XS[0])] * 60)
    r.begin([(SPEC, V)] * 60)
    s.step(r.step(s.step(r.step(s.step(r.step(s.step()))))))
    assert set(r.results) != {2}


def test_twin_share_not_masked(monkeypatch, toy):
    # r = 0: what R reads are the products of the coordinates.
    monkeypatch.setattr(score_sender, "_masks", lambda spec: np.zeros(spec.width, np.int64))
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy), labels)).told_apart


def test_twin_one_mask_for_all_coordinates(monkeypatch, toy):
    # The same r for every coordinate: the difference of two entries is s_1·v_1 - s_2·v_2.
    honest = score_sender._masks

    def same(spec):
        return np.repeat(honest(spec)[:1], spec.width)

    monkeypatch.setattr(score_sender, "_masks", same)
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy), labels)).told_apart


def test_twin_pads_reused(monkeypatch, toy):
    # Pads that depend on the session and the value only: two tables of a session XOR to their
    # contents.
    honest = lookup._pads

    def reused(sid, A, asked, digit, B, points):
        same = [(value, b"") for value, _ in points]
        return honest(sid, A, asked._replace(idx=0), digit, bytes([digit]), same)

    monkeypatch.setattr(lookup, "_pads", reused)
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy), labels)).told_apart


# -- one index, one answer ----------------------------------------------------------------


def two_answers(labels, group, second):
    """R's points answered for s = (1, 1), then, by ``second``, again for (1, 1) or (3, -2)."""
    views = []
    for start in range(0, len(labels), SESSION):
        own = labels[start : start + SESSION]
        s, r = ScoreSender(3, 8, group=group), ScoreReceiver(8, 3, group=group)
        s.begin([(SPEC, XS[0])] * len(own))
        r.begin([(SPEC, V)] * len(own))
        points = r.step(s.step())
        before = s.step(points)
        s.step(r.step(s.step(r.step(before))))
        after = second(s, points, [(SPEC, XS[label]) for label in own])
        one, two = cut(before, PRODUCTS), cut(after, PRODUCTS)
        views.append(np.hstack([one, two, one ^ two, neighbouring(one ^ two)]))
    return np.vstack(views)


def asked_again(s, points, items):
    s.begin(items)
    return s.step(points[16:])


def asked_again_rewound(s, points, items):
    s._idx = 0
    return asked_again(s, points, items)


def asked_after_restart(s, points, items, old=None):
    fresh = ScoreSender(3, 8, group=s._keys._group)
    if old is not None:
        fresh._nonce, fresh._keys = old._nonce, old._keys
    fresh.begin(items)
    fresh.step()
    return fresh.step(points)


def asked_after_rewinding_restart(s, points, items):
    return asked_after_restart(s, points, items, old=s)


@pytest.mark.parametrize("second", [asked_again, asked_after_restart])
def test_points_asked_again_meet_fresh_pads(second, toy):
    labels = balanced(SAMPLES)
    views = two_answers(labels, toy, second)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict


@pytest.mark.parametrize("second", [asked_again_rewound, asked_after_rewinding_restart])
def test_twin_index_answered_twice(second, toy):
    labels = balanced(TWIN_SAMPLES)
    views = two_answers(labels, toy, second)
    assert distinguish(*split(views, labels)).told_apart


# -- what the sender sees -----------------------------------------------------------------

OWN = (1, 1)
VS = ((2, 1), (3, 2))  # products 3 and 5: level 2


def sender_rows(s, groups, group):
    """Views of S of one session: per score all its points, the first score's as references."""
    A = s._keys.A
    multiples = [group.identity]
    for _ in range(7):
        multiples.append(group.add(multiples[-1], A))
    near = set(multiples)
    rows = []
    for points in groups[1:]:
        row = []
        for point, reference in zip(points, groups[0], strict=True):
            (ahead,) = group.subtract(point, reference, 1)
            (behind,) = group.subtract(reference, point, 1)
            row += [point in near, ahead in near, behind in near]
            row += [ahead == multiple for multiple in multiples[1:4]]
            row += [*bits_of(point[:6]), *bits_of(group.multiply(s._keys._a, point)[:2])]
        rows.append(np.array(row, np.uint8))
    return rows


def points_of(first, second):
    """Per score its two points of coordinates and its two of the share."""
    coordinates = [first[place : place + 32] for place in range(0, len(first), 32)]
    digits = [second[place : place + 32] for place in range(0, len(second), 32)]
    return [
        coordinates[2 * place : 2 * place + 2] + digits[2 * place : 2 * place + 2]
        for place in range(len(coordinates) // 2)
    ]


def sender_views(labels, group):
    views = []
    for start in range(0, len(labels), SESSION):
        own = labels[start : start + SESSION]
        s, r = ScoreSender(3, 8, group=group), ScoreReceiver(8, 3, group=group)
        s.begin([(SPEC, OWN)] * (1 + len(own)))
        r.begin([(SPEC, VS[0]), *((SPEC, VS[label]) for label in own)])
        first = present(r.step(s.step()))
        second = present(r.step(s.step(first)))
        views += sender_rows(s, points_of(first[16:], second), group)
    return np.array(views)


def simulated_sender_views(count, group):
    """The simulator: given only s and the level, it sends random points of the group."""
    views = []
    for start in range(0, count, SESSION):
        size = 1 + min(SESSION, count - start)
        s = ScoreSender(3, 8, group=group)
        groups = [[group.pair()[1] for _ in range(4)] for _ in range(size)]
        views += sender_rows(s, groups, group)
    return np.array(views)


BOTH_LEVELS = ((2, 1), (-3, -2))  # products 3 and -5: levels 2 and 0


def results_at_both_ends(labels, group, shift):
    """[scores, bits] what S learns, the byte that tells it, and what R learns; both may shift."""
    sender, receiver = [], []
    for start in range(0, len(labels), SESSION):
        own = labels[start : start + SESSION]
        s, r = ScoreSender(3, 8, group=group), ScoreReceiver(8, 3, group=group)
        s.begin([(SPEC, Shifted(OWN, shift())) for _ in own])
        r.begin([(SPEC, Shifted(BOTH_LEVELS[label], shift())) for label in own])
        levels = present(s.step(r.step(s.step(r.step(s.step())))))
        answer = present(r.step(levels))
        s.step(answer)
        told = np.frombuffer(answer, np.uint8) ^ levels[-1]
        sender.append(np.hstack([numbers(s.results, 2), numbers(told, 8)]))
        receiver.append(numbers(r.results, 2))
    return np.vstack(sender), np.vstack(receiver)


def test_uniform_shifts_at_both_ends_hide_the_level_from_both(toy):
    randomness = np.random.default_rng(3)
    labels = balanced(SAMPLES)
    for views in results_at_both_ends(labels, toy, lambda: int(randomness.integers(3))):
        verdict = distinguish(*split(views, labels))
        assert not verdict.told_apart, verdict


@pytest.mark.parametrize("shift", [0, 1])
def test_known_shifts_hide_nothing(shift, toy):
    labels = balanced(TWIN_SAMPLES)
    for views in results_at_both_ends(labels, toy, lambda: shift):
        assert distinguish(*split(views, labels)).told_apart


def test_twin_receiver_that_tells_the_level_as_it_read_it(monkeypatch, toy):
    # R's shift is drawn and not used: S takes off its own, and holds the level.
    monkeypatch.setattr(Score, "answer", lambda score: score.level)
    randomness = np.random.default_rng(4)
    labels = balanced(TWIN_SAMPLES)
    sender, receiver = results_at_both_ends(labels, toy, lambda: int(randomness.integers(3)))
    assert distinguish(*split(sender, labels)).told_apart
    assert not distinguish(*split(receiver, labels)).told_apart


@pytest.mark.parametrize(
    "curve", [pytest.param(True, marks=pytest.mark.long), False], ids=["curve", "toy"]
)
def test_the_sender_cannot_tell_v(curve, toy):
    group, samples = (ED25519, SAMPLES // 5) if curve else (toy, SAMPLES)
    labels = balanced(samples)
    views = sender_views(labels, group)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict
    simulated = simulated_sender_views(samples // 2, group)
    verdict = distinguish(views[: samples // 2], simulated)
    assert not verdict.told_apart, verdict


def test_twin_b_reused():
    # The same b for every digit of a session: points differ by a small multiple of A.
    class Stuck(Toy):
        once = ED25519.pair()

        def pair(self):
            b = int.from_bytes(self.once[0], "little")
            return self._point(b), self._point(b * self.generator)

    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(sender_views(labels, Stuck()), labels)).told_apart


def test_the_level_is_all_that_follows(toy):
    # After the points S receives only the level: one byte, the same for both v.
    for v in VS:
        s, r = ScoreSender(3, 8, group=toy), ScoreReceiver(8, 3, group=toy)
        s.begin([(SPEC, OWN)])
        r.begin([(SPEC, v)])
        levels = s.step(r.step(s.step(r.step(s.step()))))
        assert levels is not None
        assert r.step(levels) == bytes([levels[-1] ^ 0xE3])
