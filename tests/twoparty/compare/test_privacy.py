"""What a party sees does not depend on the other's value: statistics with stated power.

For a fixed own value and a fixed outcome, views for two values of the other party are put
through two tests; each has broken twins of the protocol that it must catch.

Views are rows of bits, [samples, features]. The features are chosen by someone who knows the
mechanism: raw bits of messages, but also tables with the pads this party holds taken off, XORs
of two tables, corners of rectangles in a table, and points compared with multiples of A.

The statistics and their power are those of `tests/distinguisher.py`.

The entropy of these tests is seeded by the test's name, so their result never flickers.
"""

import itertools

import numpy as np
import pytest
from tests.distinguisher import SAMPLES, TWIN_SAMPLES, balanced, bits_of, distinguish, split

from lumos.crypto import entropy
from lumos.crypto.groups import ED25519
from lumos.twoparty import comparison as receiver
from lumos.twoparty import comparison as sender
from lumos.twoparty import lookup
from lumos.twoparty.comparison import (
    Comparison,
    Receiver,
    Sender,
    Spec,
    TreeShares,
    pack,
)
from lumos.twoparty.session import crc8, encode_answer

pytestmark = pytest.mark.usefixtures("seeded")


# -- what the receiver sees ---------------------------------------------------------------

TABLE = Spec(6)
Y = 37
X = (9, 30)  # both below Y: the same outcome
ROW, COLUMN = Y >> 3, Y & 7


def receiver_rows(tables, pads, references):
    """Views of R: tables as they came, stripped of R's pads, XOR another of the session, corners.

    tables, references: bytes of 8 by 8 bits; pads: R's two pads, a byte each. The check byte is
    a function of the other bytes, the same for a whole session, and no feature.
    """
    count = len(tables)
    table = bits_of(b"".join(tables)).reshape(count, 8, 8)
    against = table ^ bits_of(b"".join(references)).reshape(count, 8, 8)
    held = bits_of(b"".join(itertools.chain(*pads))).reshape(count, 2, 8)
    stripped = table.copy()
    stripped[:, ROW, :] ^= held[:, 0]
    stripped[:, :, COLUMN] ^= held[:, 1]
    row, column = table[:, [ROW], :], table[:, :, [COLUMN]]
    corners = table ^ row ^ column ^ row[:, :, [COLUMN]]
    parts = (table, stripped, against, corners, held)
    return np.hstack([part.reshape(count, -1) for part in parts])


def receiver_views(labels, group, session=50):
    """Views of R with value Y against X[label], through whole sessions."""
    seen, held, first = [], [], []
    for start in range(0, len(labels), session):
        own = labels[start : start + session]
        s, r = Sender(3, 8, group=group), Receiver(8, 3, group=group)
        # A first comparison with a known x is the reference of the others.
        s.begin([(TABLE, X[0]), *((TABLE, X[label]) for label in own)])
        r.begin([(TABLE, Y)] * (1 + len(own)))
        points = r.step(s.step())
        kept = [comparison.kept[0][1] for comparison in r._tasks]
        tables = s.step(points)
        assert tables is not None
        s.step(r.step(tables))
        assert s.results == r.results == [1] * (1 + len(own))
        seen += [tables[8 * place : 8 * place + 8] for place in range(1, 1 + len(own))]
        held += kept[1:]
        first += [tables[:8]] * len(own)
    return receiver_rows(seen, held, first)


def simulated_receiver_views(count, group, session=50):
    """The simulator: given only Y and the outcome 1, without x and without a."""
    seen, held, first = [], [], []
    for start in range(0, count, session):
        size = min(session, count - start)
        r = Receiver(8, 3, group=group)
        r.begin([(TABLE, Y)] * (1 + size))
        opening = entropy.draw(16) + group.pair()[1]
        r.step(opening)
        kept = [comparison.kept[0][1] for comparison in r._tasks]
        tables = b""
        for pads in kept:
            # Uniform bits, but for the entry that R opens: it holds the outcome.
            table = bits_of(entropy.draw(8)).reshape(8, 8).copy()
            table[ROW, COLUMN] = 1 ^ bits_of(pads[0])[COLUMN] ^ bits_of(pads[1])[ROW]
            tables += np.packbits(table, bitorder="little").tobytes()
        # The check is computed from the messages; R accepts the simulated session.
        r.step(tables + bytes([crc8(r._check, tables)]))
        assert r.results == [1] * (1 + size)
        seen += [tables[8 * place : 8 * place + 8] for place in range(1, 1 + size)]
        held += kept[1:]
        first += [tables[:8]] * size
    return receiver_rows(seen, held, first)


@pytest.mark.parametrize("curve", [True, False], ids=["curve", "toy"])
def test_the_receiver_cannot_tell_x(curve, toy):
    # In full on the toy group, where a table costs less; a fifth of it on the curve.
    group, samples = (ED25519, SAMPLES // 5) if curve else (toy, SAMPLES)
    labels = balanced(samples)
    views = receiver_views(labels, group)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict
    # The simulator's views pass the same test against the real ones of both kinds.
    simulated = simulated_receiver_views(samples // 2, group)
    verdict = distinguish(views[: samples // 2], simulated)
    assert not verdict.told_apart, verdict


def test_twin_pads_reused(monkeypatch, toy):
    # Pads that depend on the session and the value only: two tables of a session XOR to
    # [x < j] ⊕ [x' < j].
    honest = lookup._pads

    def reused(sid, A, asked, digit, B, points):
        same = [(value, b"") for value, _ in points]
        return honest(sid, A, asked._replace(idx=0), digit, bytes([digit]), same)

    monkeypatch.setattr(lookup, "_pads", reused)
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy), labels)).told_apart


def test_twin_pads_not_stretched(monkeypatch, toy):
    # One pad bit per digit value for all entries: the corners of a rectangle cancel.
    honest = lookup._pads

    def short(*arguments):
        return [bytes([0xFF * (pad[0] & 1)]) * len(pad) for pad in honest(*arguments)]

    monkeypatch.setattr(lookup, "_pads", short)
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(receiver_views(labels, toy), labels)).told_apart


def test_twin_pads_without_the_curve(monkeypatch, toy):
    # Pads that leave out W: R derives them all, and reads the whole table.
    honest = lookup._pads

    def public(sid, A, asked, digit, B, points):
        return honest(sid, A, asked, digit, B, [(value, b"") for value, _ in points])

    monkeypatch.setattr(lookup, "_pads", public)
    labels = balanced(TWIN_SAMPLES)
    views = []
    for label in labels:
        s, r = Sender(3, 8, group=toy), Receiver(8, 3, group=toy)
        s.begin([(TABLE, X[label])])
        r.begin([(TABLE, Y)])
        points = r.step(s.step())
        asked = r._tasks[0].asked[0]
        sid, A = r._live()._sid, r._live()._A
        assert points is not None
        tables = s.step(points)
        assert tables is not None
        table = bits_of(tables[:-1]).reshape(8, 8).copy()
        for digit in (0, 1):
            B = points[16 + 32 * digit : 48 + 32 * digit]
            pads = public(sid, A, asked, digit, B, [(value, b"") for value in range(8)])
            mask = np.array([bits_of(pad) for pad in pads])
            table ^= mask if digit == 0 else mask.T
        views.append(table.ravel())
    assert distinguish(*split(np.array(views), labels)).told_apart


# -- one index, one answer ----------------------------------------------------------------

SMALL = Spec(4)


def two_tables(labels, group, second, session=50):
    """R's points answered for x = 5, then, by ``second``, again for x = 5 or 2."""
    views = []
    for start in range(0, len(labels), session):
        own = labels[start : start + session]
        s, r = Sender(3, 8, group=group), Receiver(8, 3, group=group)
        s.begin([(SMALL, 5)] * len(own))
        r.begin([(SMALL, 9)] * len(own))
        points = r.step(s.step())
        before = s.step(points)
        assert before is not None
        s.step(r.step(before))
        after = second(s, points, [(SMALL, (5, 2)[label]) for label in own])
        for place in range(0, 2 * len(own), 2):
            one, two = before[place : place + 2], after[place : place + 2]
            views.append(bits_of(one + two + xor(one, two)))
    return np.array(views)


def xor(left, right):
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def asked_again(s, points, items):
    s.begin(items)
    return s.step(points[16:])


def asked_again_rewound(s, points, items):
    s._idx = 0
    return asked_again(s, points, items)


def asked_after_restart(s, points, items, old=None):
    fresh = Sender(3, 8, group=s._keys._group)
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
    views = two_tables(labels, toy, second)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict


@pytest.mark.parametrize("second", [asked_again_rewound, asked_after_rewinding_restart])
def test_twin_index_answered_twice(second, toy):
    # One index answered twice with another x, within a session and after a restart that
    # took the key and the counter along: the XOR of the two tables reveals it.
    labels = balanced(TWIN_SAMPLES)
    views = two_tables(labels, toy, second)
    assert distinguish(*split(views, labels)).told_apart


# -- what the sender sees -----------------------------------------------------------------

DIGIT = Spec(4)
OWN_X = 5
YS = (8, 15)  # both above OWN_X: the same outcome


def sender_row(point, before, product, steps):
    """One view of S: the point, its product with a, its distance to the point before."""
    return np.concatenate(
        [
            bits_of(point),
            bits_of(product[:8]),
            bits_of(xor(point, before)[:8]),
            np.array(steps, np.uint8),
        ]
    )


def sender_rows(s, points, group):
    """Views of S of one session's points; the first is the reference of the others."""
    listed = [points[place : place + 32] for place in range(0, len(points), 32)]
    A = s._keys.A
    multiples = [group.identity]
    for _ in range(15):
        multiples.append(group.add(multiples[-1], A))
    base = set(multiples)
    rows = []
    for point in listed[1:]:
        (ahead,) = group.subtract(point, listed[0], 1)
        (behind,) = group.subtract(listed[0], point, 1)
        known = [ahead in base, behind in base, point in base]
        known += [ahead == multiple for multiple in multiples[1:8]]
        rows.append(sender_row(point, listed[0], group.multiply(s._keys._a, point), known))
    return rows


def sender_views(labels, group, session=50, receiver_class=Receiver):
    views = []
    for start in range(0, len(labels), session):
        own = labels[start : start + session]
        s, r = Sender(3, 8, group=group), receiver_class(8, 3, group=group)
        s.begin([(DIGIT, OWN_X)] * (1 + len(own)))
        r.begin([(DIGIT, YS[0]), *((DIGIT, YS[label]) for label in own)])
        views += sender_rows(s, r.step(s.step())[16:], group)
    return np.array(views)


def simulated_sender_views(count, session=50):
    """The simulator: given only x and the outcome, it sends random points of the group."""
    views = []
    for start in range(0, count, session):
        size = 1 + min(session, count - start)
        s = Sender(3, 8)
        points = b"".join(ED25519.pair()[1] for _ in range(size))
        views += sender_rows(s, points, ED25519)
    return np.array(views)


def test_the_sender_cannot_tell_y():
    labels = balanced(SAMPLES)
    views = sender_views(labels, ED25519)
    verdict = distinguish(*split(views, labels))
    assert not verdict.told_apart, verdict
    verdict = distinguish(views[: SAMPLES // 2], simulated_sender_views(SAMPLES // 2))
    assert not verdict.told_apart, verdict


def test_twin_b_reused(monkeypatch):
    # The same b for every digit of a session: points differ by a small multiple of A.
    class Stuck:
        name, point_bytes, identity = ED25519.name, ED25519.point_bytes, ED25519.identity
        key, multiply, subtract = ED25519.key, ED25519.multiply, ED25519.subtract
        add = staticmethod(ED25519.add)
        once = ED25519.pair()

        def pair(self):
            return self.once

    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(sender_views(labels, Stuck()), labels)).told_apart


def test_the_answer_is_all_that_follows(toy):
    # After the points S receives only the outcome: one of two bytes, the same for both y.
    for y in YS:
        s, r = Sender(3, 8, group=toy), Receiver(8, 3, group=toy)
        s.begin([(DIGIT, OWN_X)])
        r.begin([(DIGIT, y)])
        tables = s.step(r.step(s.step()))
        assert tables is not None
        answer = r.step(tables)
        assert answer == bytes([tables[-1] ^ 0x1F])


# -- the tree, with the transfers taken as ideal ------------------------------------------

TALL = Spec(16)


def shares_of(r, entries, indices):
    leaves = len(r.plan.leaves)
    return TreeShares(
        r.plan,
        sender=False,
        leaves=entries[:leaves],
        triples=[
            [index >> place & 1 for place in reversed(range(shape.widths[0]))]
            for shape, index in zip(r.plan.triples, indices[leaves:], strict=True)
        ],
        products=entries[leaves:],
    )


def run_tree(x, y):
    """Both parties' shares of one tree; S's tables read at R's indices and nowhere else."""
    s, r = Comparison(TALL, x, 0), Comparison(TALL, y, 0)
    plain = sender._tree(s)
    indices = receiver._indices(r)
    entries = []
    for table, index in zip(plain, indices, strict=True):
        entries.append(sum(int(row[index]) << place for place, row in enumerate(table)))
    r.tree = shares_of(r, entries, indices)
    said = []
    for position, part in enumerate(r.parts[1:-1], 1):
        speaker, listener = (s, r) if position % 2 else (r, s)
        words = speaker.compose(part, 0)
        listener.receive(part, words, 0)
        said.append(words)
    assert r.outcome_bits == (x < y)
    return s, r, entries, indices[len(r.plan.leaves) :], said


def tree_receiver_row(x, y):
    _, r, entries, factors, said = run_tree(x, y)
    return receiver_tree_row(r, entries, factors, said[::2])


def receiver_tree_row(r, entries, factors, heard):
    # Entries, own factors, what S opened, and what both opened together; S's last share is
    # R's own XOR the outcome.
    public = [own ^ other for level in r.tree._mine for own, other in both(r, level)]
    small = [value >> place & 1 for value in [*entries, *factors] for place in range(3)]
    return np.array([*small, *bits_of(b"".join(heard)), *public], np.uint8)


def tree_sender_row(x, y):
    s, _, _, _, said = run_tree(x, y)
    return sender_tree_row(s, said[1::2])


def sender_tree_row(s, heard):
    public = [own ^ other for level in s.tree._mine for own, other in both(s, level)]
    own = [*s.tree._lt, *s.tree._eq, *itertools.chain(*s.tree._triples)]
    crossed = [bit ^ other for bit, other in zip(own, itertools.cycle(public), strict=False)]
    return np.array([*bits_of(b"".join(heard)), *public, *own, *crossed], np.uint8)


def random_opening(part, plan):
    count = sum(merge.opened for level in part.opened for merge in plan.levels[level])
    return pack(entropy.bits(count))


def simulated_tree_receiver_row(y):
    """Given y and the outcome 1: uniform entries and openings, and the share that fits."""
    r = Comparison(TALL, y, 0)
    indices = receiver._indices(r)
    entries = [
        sum(bit << place for place, bit in enumerate(entropy.bits(shape.outputs)))
        for shape in r.plan.lookups
    ]
    leaves = len(r.plan.leaves)
    r.tree = shares_of(r, entries, indices)
    heard = []
    for position, part in enumerate(r.parts[1:-1], 1):
        if position % 2 == 0:
            r.compose(part, 0)
            continue
        words = random_opening(part, r.plan)
        r.receive(part._replace(answer=False), words, 0)
        if part.answer:
            words += encode_answer(r.tree.root() ^ 1, 0)
        heard.append(words)
    return receiver_tree_row(r, entries, indices[leaves:], heard)


def simulated_tree_sender_row(x):
    """Given x and the outcome 1: S's own randomness, and uniform openings from R."""
    s = Comparison(TALL, x, 0)
    sender._tree(s)
    heard = []
    for position, part in enumerate(s.parts[1:-1], 1):
        if position % 2:
            s.compose(part, 0)
        else:
            heard.append(random_opening(part, s.plan))
            s.receive(part, heard[-1], 0)
    return sender_tree_row(s, heard)


def both(comparison, level):
    return zip(comparison.tree._mine[level], comparison.tree._theirs[level], strict=True)


# Values whose digits agree and differ in different places, all with x < y.
TREE_XS, TREE_Y = (0x1230, 0x8F2A), 0x9F3C
TREE_X, TREE_YS = 0x1230, (0x1231, 0xF0FF)


def tree_receiver_views(labels):
    return np.array([tree_receiver_row(TREE_XS[label], TREE_Y) for label in labels])


def tree_sender_views(labels):
    return np.array([tree_sender_row(TREE_X, TREE_YS[label]) for label in labels])


@pytest.mark.parametrize(
    ("views", "simulate"),
    [
        (tree_receiver_views, lambda: simulated_tree_receiver_row(TREE_Y)),
        (tree_sender_views, lambda: simulated_tree_sender_row(TREE_X)),
    ],
    ids=["receiver", "sender"],
)
def test_the_tree_shows_only_the_outcome(views, simulate):
    labels = balanced(SAMPLES)
    seen = views(labels)
    verdict = distinguish(*split(seen, labels))
    assert not verdict.told_apart, verdict
    simulated = np.array([simulate() for _ in range(SAMPLES // 2)])
    verdict = distinguish(seen[: SAMPLES // 2], simulated)
    assert not verdict.told_apart, verdict


def test_twin_tree_share_not_masked(monkeypatch):
    # Leaves and triples without masks: R's entries are the digits' lt and eq.
    monkeypatch.setattr(entropy, "bits", lambda count: [0] * count)
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(tree_receiver_views(labels), labels)).told_apart


def test_twin_tree_opened_without_triples(monkeypatch):
    # R's factors are not random: what it opens are its shares, and S reads the digits.
    monkeypatch.setattr(entropy, "draw", lambda count: bytes(count))
    randomness = np.random.default_rng(3)
    monkeypatch.setattr(entropy, "bits", lambda count: randomness.integers(0, 2, count).tolist())
    labels = balanced(TWIN_SAMPLES)
    assert distinguish(*split(tree_sender_views(labels), labels)).told_apart
