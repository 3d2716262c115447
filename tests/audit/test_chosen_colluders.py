"""Colluders who choose themselves open a mask graph that they know, and not one that is drawn."""

import math
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.audit import coalitions
from tests.secagg.federation import Federation, drawn_graph, graph_in_order, some_graph

import lumos
from lumos.audit.attacks import sums as attack
from lumos.device import system_secrets
from lumos.exchange import Program
from lumos.secagg import (
    AggregateSettings,
    SecureAggregator,
    SecureCoordinator,
    mask_graph,
    mask_parameters,
)
from lumos.secagg.mask_graph import MaskGraph
from lumos.secagg.masks import SumId
from lumos.secagg.parameters import both_windows, tail
from lumos.secagg.topics import MASKED, WRAPPED

TOTAL, K, T, VICTIM = 40, 8, 6, 17
SETTINGS = AggregateSettings(neighbours=K, threshold=T)
VECTORS = np.random.default_rng(0).normal(scale=20, size=(TOTAL, 5))


class Colluding(SecureAggregator):
    """Colluders follow the protocol, and keep the shares that they hold."""

    kept: dict[str, Any]

    def _values(self, keys: Any) -> Any:
        own, vault = super()._values(keys)
        of = SumId(self._run, self._pairs.number - 1)
        type(self).kept.update(
            graph=self._graph, values=vault._values.copy(), fixed=self.fixed, of=of
        )
        return own, vault


class Curious(SecureCoordinator):
    """Follows the protocol, and keeps what it receives of the victim."""

    kept: dict[str, Any]

    def sum(self, width: int, noise: Any = None) -> Program[Any]:
        program = super().sum(width)
        outbox = next(program)
        try:
            while True:
                inbox = yield outbox
                if outbox.topic in (MASKED, WRAPPED):
                    type(self).kept[outbox.topic.name] = inbox.body[VICTIM].copy()
                outbox = program.send(inbox)
        except StopIteration as stop:
            return stop.value


@pytest.mark.parametrize("system", [False, True], ids=["known graph", "drawn graph"])
def test_a_chosen_coalition_opens_a_vector_of_a_known_graph_only(system: bool) -> None:
    """The broken twin: with simulated randomness the graph follows from the run seed.

    t of 40 devices choose themselves by that graph before the run. Where it is the graph of the
    run, they and a coordinator that follows the protocol have the victim's vector, bit by bit. If
    the devices' randomness comes from the operating system, the same coalition holds too few
    shares.
    """
    known = drawn_graph(TOTAL, K)
    colluding = coalitions.coalition_around(known, VICTIM, T)
    kept: dict[str, Any] = {}
    options: dict[str, Any] = {"secrets": system_secrets} if system else {}
    Federation(
        SETTINGS,
        aggregator=type("Kept", (Colluding,), {"kept": kept}),
        coordinator=type("Kept", (Curious,), {"kept": kept}),
        **options,
    ).run([VECTORS])
    graph, fixed = kept["graph"], kept["fixed"]
    assert np.array_equal(graph.order, known.order) != system
    holders = graph.of(np.array([VICTIM]))[0]
    slots = np.flatnonzero(colluding[holders])
    if system:
        assert len(slots) < T  # except with the probability of the next test, 2e-6
        assert not coalitions.surrounded(graph, T, colluding)[VICTIM]
    else:
        assert coalitions.surrounded(graph, T, colluding)[VICTIM]
        values = kept["values"][holders[slots], K - 1 - slots]
        sent = kept["of"], VICTIM, kept[MASKED.name], kept[WRAPPED.name]
        found = coalitions.recovered_vector(graph, fixed, *sent, slots, values)
        assert np.array_equal(found, fixed.rounded(VECTORS[VICTIM]))
        fewer = coalitions.recovered_vector(graph, fixed, *sent, slots[1:], values[1:])
        assert not (found == fewer).any()


@pytest.mark.parametrize("total", [2000, 22_470])
def test_few_devices_are_enough_where_the_graph_is_known(total: int) -> None:
    """As they were: 52 of 2,000 and 59 of 22,470; of a graph drawn later the same surround none."""
    before = {2000: (70, 52), 22_470: (80, 59)}[total]
    for k, t in (before, _k_and_t(total)):
        known = some_graph(total, k, 1)
        colluding = coalitions.coalition_around(known, VICTIM, t)
        assert colluding.sum() == t < 0.03 * total
        assert coalitions.surrounded(known, t, colluding)[VICTIM]
        lying = coalitions.coalition_around(known, VICTIM, 2 * t - k)
        assert coalitions.surrounded(known, 2 * t - k, lying)[VICTIM]
        for number in range(20):
            drawn = some_graph(total, k, 2 + number)
            assert not coalitions.surrounded(drawn, 2 * t - k, colluding).any()
            assert not coalitions.parted(drawn, t, colluding)


def _k_and_t(total: int) -> tuple[int, int]:
    parameters = mask_parameters(AggregateSettings(), total)
    return parameters.neighbours, parameters.threshold


def graphs_of(total: int, k: int) -> Any:
    """The mask graphs of all orders of the ring, each of them once."""
    for rest in permutations(range(1, total)):
        yield graph_in_order(np.array([0, *rest]), k)


def test_the_probabilities_are_those_of_all_orders_of_the_ring() -> None:
    """Exact enumeration: 5,040 rings of eight devices, a fixed coalition."""
    total, k, colluding = 8, 4, np.arange(8) < 3
    around = np.zeros(k + 1)
    windows = np.zeros((3, 3))
    parted = dict.fromkeys((3, 4), 0)
    some = dict.fromkeys((3, 4), 0)
    for graph in graphs_of(total, k):
        around[graph.count(colluding)[7]] += 1
        ring = colluding[graph.order]
        windows[ring[1:3].sum(), ring[4:6].sum()] += 1
        for t in (3, 4):
            parted[t] += coalitions.parted(graph, t, colluding)
            some[t] += bool(coalitions.surrounded(graph, 2 * t - k, colluding).any())
    rings = math.factorial(total - 1)
    for least in range(k + 1):
        assert around[least:].sum() / rings == pytest.approx(tail(total - 1, 3, k, least))
    # Device 0 colludes and stands in place 0: two windows of the seven others, with two colluders.
    for least in range(3):
        frequency = windows[least:, least:].sum() / rings
        assert frequency == pytest.approx(both_windows(total - 1, 2, 2, least))
    for t in (3, 4):
        bound = mask_parameters(AggregateSettings(neighbours=k, threshold=t, corrupt=3 / 8), total)
        assert parted[t] / rings <= bound.parted
        assert some[t] / rings <= bound.surrounded


@given(st.integers(2, 14), st.data())
def test_two_windows_are_counted_as_all_subsets_count_them(total: int, data: Any) -> None:
    size = data.draw(st.integers(1, total // 2))
    marked = data.draw(st.integers(0, total))
    least = data.draw(st.integers(0, size))
    hits = 0
    for chosen in combinations(range(total), marked):
        first = sum(place < size for place in chosen)
        second = sum(size <= place < 2 * size for place in chosen)
        hits += first >= least and second >= least
    expected = hits / math.comb(total, marked)
    assert both_windows(total, marked, size, least) == pytest.approx(expected)


def test_the_bound_holds_for_a_coalition_that_speaks_last() -> None:
    """Monte Carlo over draws: honest contributions are random, colluders' are what they like.

    The victim and the coalition were chosen before. The frequency of each number of colluding
    neighbours is the hypergeometric one; that anybody is surrounded is below the union bound.
    """
    total, k, t, c, runs = 30, 6, 5, 6, 4000
    colluding = np.arange(total) < c
    random = np.random.default_rng(1)
    counts, hits, apart = np.zeros(k + 1), 0, 0
    for _ in range(runs):
        contributions = random.integers(0, 256, (total, 16), np.uint8)
        contributions[:c] = contributions[c:].sum(axis=0, dtype=np.uint8)
        graph = MaskGraph(total, k, mask_graph.seed_of(contributions, 0))
        counts[graph.count(colluding)[VICTIM]] += 1
        hits += bool(coalitions.surrounded(graph, 2 * t - k, colluding).any())
        apart += coalitions.parted(graph, t, colluding)
    expected = runs * stats.hypergeom.pmf(np.arange(k + 1), total - 1, c, k)
    likely = expected > 5
    observed = np.append(counts[likely], counts[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum())
    assert stats.chisquare(observed, wanted).pvalue > 1e-4
    bounds = mask_parameters(AggregateSettings(neighbours=k, threshold=t, corrupt=0.2), total)
    for count, bound in ((hits, bounds.surrounded), (apart, bounds.parted)):
        assert count > 0
        assert count / runs <= bound + 4 * math.sqrt(bound / runs)


def gaps_of(members: np.ndarray) -> list[int]:
    """Lengths of the runs of places on the ring that are not in a group."""
    places = np.flatnonzero(members)
    return (np.diff(np.append(places, places[0] + len(members))) - 1).tolist()


@pytest.mark.parametrize(("total", "k", "t"), [(10, 4, 3), (11, 4, 4), (9, 6, 4), (11, 6, 5)])
def test_every_group_that_is_opened_alone_on_small_rings(total: int, k: int, t: int) -> None:
    """Brute force over all coalitions and all groups of honest devices.

    A group can be opened alone exactly if peeling leaves it. Unless two windows are full of
    colluders, it leaves out one run of h places at most, shorter than k; unless some device is
    surrounded, it has k - t + 2 members at least.
    """
    graph = graph_in_order(np.arange(total), k)
    h, cut, small = k // 2, 0, 0
    groups = (np.arange(1, 1 << total)[:, None] >> np.arange(total)) & 1 == 1
    # [groups, total] members among the neighbours of each place
    steps = graph.of(np.arange(total))
    beside = groups[:, steps].sum(axis=2)
    for size in range(total - 2):
        for rest in combinations(range(1, total), max(0, size - 1)):
            colluding = np.zeros(total, np.bool_)
            if size:
                colluding[[0, *rest]] = True  # all rotations of the ring are alike
            held = graph.count(colluding)
            fits = ~(groups & colluding).any(axis=1)
            fits &= (~groups | (beside + held >= t)).all(axis=1)
            parted = coalitions.parted(graph, t, colluding)
            around = coalitions.surrounded(graph, 2 * t - k, colluding).any()
            for group in groups[fits]:
                assert np.array_equal(coalitions.opened_alone(graph, t, colluding, group), group)
                long = [gap for gap in gaps_of(group) if gap >= h]
                far = len(long) > 1 or any(gap >= k for gap in long)
                assert parted or not far
                assert around or group.sum() >= k - t + 2
                cut, small = cut + far, small + (group.sum() < k - t + 2)
    assert cut > 0  # both really happen
    assert small > 0


IN, LOST, LEFT_OUT = 0, 1, 2


class Told:
    """One round in which a lying coordinator tells each device what it likes, by the rules.

    views: [devices, k] what each hears of its neighbours: in the sum, lost, or left out.
    told: [devices] who is told to open.
    confirmed: whether t neighbours must confirm a device before it opens anything.
    """

    def __init__(
        self,
        graph: MaskGraph,
        t: int,
        colluding: np.ndarray,
        views: np.ndarray,
        told: np.ndarray,
        *,
        confirmed: bool = True,
    ) -> None:
        total, k = graph.total, graph.neighbours
        of = graph.of(np.arange(total))
        mirrored = k - 1 - np.arange(k)
        sending = ~colluding & ((views < LEFT_OUT).sum(axis=1) >= t)
        opening = sending & told & ((views == IN).sum(axis=1) >= t)
        # A device opens if t of its neighbours in the sum have it in the sum; colluders say so.
        seen = views[of, mirrored]  # by what each neighbour heard
        confirming = (opening[of] & (seen == IN)) | colluding[of]
        by_enough = (confirming & (views == IN)).sum(axis=1) >= t
        revealing = opening & (by_enough | (not confirmed))
        masked_with = views < LEFT_OUT
        # Only those with whom a device masked hold shares of its self secret.
        own = masked_with & ((revealing[of] & (seen == IN)) | colluding[of])
        pair = (revealing[of] & (seen == LOST)) | colluding[of]
        self.opened = sending & (own.sum(axis=1) >= t)
        self.pair_opened = pair.sum(axis=1) >= t
        self.hidden = masked_with & ~colluding[of] & ~self.pair_opened[of]
        self.hidden &= ~self.pair_opened[:, None]
        self.of = of

    def groups(self) -> set[frozenset[int]]:
        """Sets of vectors whose sum may be open: no unknown mask leads out of them."""
        found = set()
        for start in np.flatnonzero(self.opened).tolist():
            group, new = set(), {start}
            while new:
                group |= new
                new = {int(u) for v in new for u in self.of[v][self.hidden[v]]} - group
            if all(self.opened[v] for v in group):
                found.add(frozenset(group))
        return found


def random_lies(graph: MaskGraph, colluding: np.ndarray, random: Any) -> tuple[Any, Any]:
    """Views and who is told to open: mostly one group that the liar prefers."""
    total, k = graph.total, graph.neighbours
    of = graph.of(np.arange(total))
    favourite = random.random(total) < random.random()
    views = np.where(favourite[of], IN, random.integers(0, 3, (total, k)))
    noise = random.random((total, k)) < 0.1 * random.random()
    views = np.where(noise, random.integers(0, 3, (total, k)), views)
    views[colluding[of]] = IN
    return views, favourite | (random.random(total) < 0.2)


def test_whatever_a_liar_tells_to_whom_a_group_that_opens_could_be_opened_alone() -> None:
    """The converse, by random lies: each member has t - X neighbours in the group."""
    found = fewer = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        total, k, t = [(9, 4, 3), (12, 6, 4), (12, 6, 5), (9, 8, 6)][seed % 4]
        graph = some_graph(total, k, seed)
        colluding = random.random(total) < 0.25
        if coalitions.surrounded(graph, 2 * t - k, colluding).any():
            continue
        for _ in range(10):
            told = Told(graph, t, colluding, *random_lies(graph, colluding, random))
            for group in told.groups():
                members = np.isin(np.arange(total), [*group])
                alone = coalitions.opened_alone(graph, t, colluding, members)
                assert np.array_equal(alone, members)
                assert members.sum() >= k - t + 2
                found, fewer = found + 1, fewer + (len(group) < (~colluding).sum())
    assert found > 50  # lies do open groups, and not only that of all honest devices
    assert fewer > 0


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_liar_opens_one_vector_where_devices_do_not_confirm(confirmed: bool) -> None:
    """The broken twin of the rule behind the bound: k = 8, t = 5, device 8 colludes.

    Device 0 hears that 5, 6 and 7 are left out; all others hear that it is in the sum. Of 1 to 4
    each device calls at most three lost, and each of them is called lost by four.
    """
    total, k, t = 9, 8, 5
    graph = some_graph(total, k)
    of = graph.of(np.arange(total))
    views = np.full((total, k), IN)
    views[0, np.isin(of[0], [5, 6, 7])] = LEFT_OUT
    lies = {5: [1, 2, 3], 6: [2, 3, 4], 7: [3, 4, 1], 1: [2, 4], 2: [1, 4], 3: [1], 4: [2, 3]}
    for device, lost in lies.items():
        views[device, np.isin(of[device], lost)] = LOST
    colluding = np.arange(total) == 8
    assert not coalitions.surrounded(graph, 2 * t - k, colluding).any()
    told = Told(graph, t, colluding, views, np.ones(total, np.bool_), confirmed=confirmed)
    assert ({0} in told.groups()) != confirmed
    assert not (confirmed and told.groups())


def test_the_audit_finds_nobody_opened_and_a_repeated_graph_exceeds_its_bound() -> None:
    report = lumos.run_audit("demo:200", attacks=["colluders"], task="classify")
    assert report.rows[0].value == 0
    assert report.rows[1].value < 1
    few = lumos.run_audit("demo:60", attacks=["colluders"], task="classify").rows[0]
    assert few.about.startswith("devices whose vector 6 colluders open")  # 10 %, and not t = 11
    before = attack.agreed_pairs(200, AggregateSettings())
    threshold = mask_parameters(AggregateSettings(), 200).threshold
    assert (attack.caught(before, before, threshold) == threshold).all()  # known: all
