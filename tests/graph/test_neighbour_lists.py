"""Cleaning, against NetworkX."""

import networkx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lumos.graph.arrays import distinct, neighbour_lists, spans

pairs_and_devices = st.integers(1, 12).flatmap(
    lambda devices: st.tuples(
        st.lists(st.tuples(st.integers(0, devices - 1), st.integers(0, devices - 1)), max_size=60),
        st.just(devices),
    )
)


@given(pairs_and_devices)
def test_neighbour_lists_are_those_of_networkx(case: tuple[list[tuple[int, int]], int]) -> None:
    rows, devices = case
    clean = neighbour_lists(np.array(rows, dtype=np.int64).reshape(-1, 2), devices)
    oracle = networkx.Graph()
    oracle.add_nodes_from(range(devices))
    oracle.add_edges_from((u, v) for u, v in rows if u != v)
    for device in range(devices):
        mine = clean.neighbours[clean.offsets[device] : clean.offsets[device + 1]]
        assert mine.tolist() == sorted(oracle[device])


@given(pairs_and_devices)
def test_every_row_is_kept_or_counted(case: tuple[list[tuple[int, int]], int]) -> None:
    rows, devices = case
    clean = neighbour_lists(np.array(rows, dtype=np.int64).reshape(-1, 2), devices)
    arcs = {(u, v) for u, v in rows if u != v}
    assert clean.self_loops == sum(u == v for u, v in rows)
    assert clean.repeats == len(rows) - clean.self_loops - len(arcs)
    assert clean.both_ways == sum((v, u) in arcs for u, v in arcs) / 2
    assert len(rows) == (
        clean.self_loops + clean.repeats + clean.both_ways + len(clean.neighbours) // 2
    )


@given(st.lists(st.integers(-5, 5)))
def test_distinct_is_a_sorted_set(values: list[int]) -> None:
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8))
def test_equals_ranges_one_by_one(rows: list[tuple[int, int]]) -> None:
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    expected = [place for start, count in rows for place in range(start, start + count)]
    assert spans(pairs[:, 0], pairs[:, 1]).tolist() == expected
