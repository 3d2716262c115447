"""Shares that nobody sends: Shamir's, for those who are present, and padded for everybody else."""

from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secagg.federation import some_elements

from lumos.secagg import shares as shamir
from lumos.secagg.shares import reconstruct_secret, secrets_of


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, np.ndarray]:
    """A threshold, and who is present at each of some devices."""
    k = draw(st.integers(1, 9))
    t = draw(st.integers(1, k))
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        absent = draw(st.sets(st.integers(0, k - 1), max_size=k - t))
        rows.append([slot not in absent for slot in range(k)])
    return t, np.array(rows, np.bool_).reshape(-1, k)


@given(cases(), st.data())
def test_any_t_of_those_present_give_the_secret(
    case: tuple[int, np.ndarray], data: st.DataObject
) -> None:
    t, present = case
    values = some_elements(*present.shape, 3)
    secrets, corrections = secrets_of(values, present, t)
    assert corrections.shape == (len(present), present.shape[1] - t, 3)
    answering = np.zeros_like(present)
    for row, there in enumerate(present):
        slots = np.flatnonzero(there).tolist()
        chosen = data.draw(st.lists(st.sampled_from(slots), min_size=t, unique=True))
        answering[row, chosen] = True
        # Behind the last holder nothing is published.
        assert not corrections[row, len(slots) - t :].any()
    given_out = np.where(answering[:, :, None], values, 0).astype(np.uint16)
    found = reconstruct_secret(given_out, corrections, present, answering, t)
    assert np.array_equal(found, secrets)


def test_the_first_t_values_are_shares_as_they_are() -> None:
    values = some_elements(2, 5, 8)
    secrets, corrections = secrets_of(values, np.ones((2, 5), np.bool_), 3)
    points = np.tile([1, 2, 3], (2, 1))
    assert np.array_equal(shamir.reconstruct(points, values[:, :3]), secrets)
    shares = (values[:, 3:].astype(int) + corrections) % shamir.PRIME
    found = shamir.interpolate(points, values[:, :3], np.tile([4, 5], (2, 1)))
    assert np.array_equal(shares, found)


def in_a_tiny_field(monkeypatch: pytest.MonkeyPatch, prime: int) -> None:
    plain = shamir.interpolate
    monkeypatch.setattr(shamir, "PRIME", prime)
    monkeypatch.setattr(
        shamir, "interpolate", lambda points, values, wanted: plain(points, values, wanted, prime)
    )


@pytest.mark.parametrize("present", [(1, 1, 1, 1), (0, 1, 1, 1), (1, 1, 0, 1)])
def test_what_is_published_and_fewer_values_leave_every_secret_as_likely(
    present: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values of four holders in GF(5), t = 2: by enumeration.

    Whoever knows one value of a holder that is present, all corrections, and the values of those
    who are absent, finds each secret equally often.
    """
    prime, t = 5, 2
    in_a_tiny_field(monkeypatch, prime)
    values = np.array(list(product(range(prime), repeat=4)), np.uint16)
    there = np.tile(np.array(present, np.bool_), (len(values), 1))
    secrets, corrections = secrets_of(values[:, :, None], there, t)
    absent = [slot for slot in range(4) if not present[slot]]
    holders = [slot for slot in range(4) if present[slot]]
    for known in combinations(holders, t - 1):
        views = np.hstack([values[:, [*known, *absent]], corrections[:, :, 0]])
        seen = Counter(zip(map(tuple, views.tolist()), secrets[:, 0].tolist(), strict=True))
        by_view: dict[Any, set[tuple[int, int]]] = {}
        for (view, secret), count in seen.items():
            by_view.setdefault(view, set()).add((secret, count))
        for found in by_view.values():
            assert len(found) == prime
            assert len({count for _, count in found}) == 1


def test_with_t_values_the_same_count_finds_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin of the test above: one value more, and there is one secret for each view."""
    in_a_tiny_field(monkeypatch, 5)
    values = np.array(list(product(range(5), repeat=4)), np.uint16)
    secrets, corrections = secrets_of(values[:, :, None], np.ones_like(values, np.bool_), 2)
    views = np.hstack([values[:, [1, 3]], corrections[:, :, 0]])
    seen = set(zip(map(tuple, views.tolist()), secrets[:, 0].tolist(), strict=True))
    assert len(seen) == len({view for view, _ in seen})
