"""Random matchings: brute force, networkx and closed forms."""

import math
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.runs.running import listening
from tests.strict.linking import on_shards, whole

from lumos.device.shard import Shard
from lumos.exchange import Endpoint, LedgerReport, Outbox, Program
from lumos.exchange.endpoint import changed
from lumos.graph import Graph
from lumos.strict.link.encoder import NOBODY, ROUNDS, _accepted, match
from lumos.strict.messages import PROPOSAL, REPLY


def matched(
    graph: Graph, shards: int = 1, seed: int = 0, purpose: str = "test"
) -> tuple[np.ndarray, LedgerReport]:
    """[devices] partners, where all neighbours are candidates."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[np.ndarray]:
        return match(shard, shard.owner, shard.neighbours, purpose)

    parts, ledger = on_shards(graph, device, shards, seed)
    return whole(parts), ledger


def random_graph(devices: int, edges: int, seed: int) -> Graph:
    return Graph.from_edges(
        np.random.default_rng(seed).integers(0, devices, (edges, 2)), devices=devices
    )


def pairs_only(pairs: int) -> Graph:
    """Every device has exactly one neighbour."""
    return Graph.from_edges(np.arange(2 * pairs).reshape(-1, 2), devices=2 * pairs)


def check(graph: Graph, partner: np.ndarray) -> set[tuple[int, int]]:
    """Both ends agree, and networkx says that it is a matching of edges."""
    taken = np.flatnonzero(partner != NOBODY)
    assert_array_equal(partner[partner[taken]], taken)
    edges = {(int(one), int(partner[one])) for one in taken if one < partner[one]}
    network = nx.Graph(graph.edge_list().tolist())
    network.add_nodes_from(range(graph.devices))
    assert nx.is_matching(network, edges)
    return edges


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("devices", "edges"), [(2, 1), (9, 12), (40, 60), (120, 900)])
def test_partners_are_a_matching_of_edges(devices: int, edges: int, seed: int) -> None:
    graph = random_graph(devices, edges, seed)
    partner, _ = matched(graph, seed=seed)
    check(graph, partner)


@pytest.mark.parametrize("shards", [2, 7, 60])
def test_shards_change_no_partner(shards: int, sixty: Graph, ledger_differences: Any) -> None:
    partner, ledger = matched(sixty)
    check(sixty, partner)
    elsewhere, there = matched(sixty, shards)
    assert_array_equal(elsewhere, partner)
    assert ledger_differences(ledger, there) == []


def test_randomness_decide_and_nothing_else(sixty: Graph) -> None:
    partner, _ = matched(sixty)
    assert_array_equal(matched(sixty)[0], partner)
    assert (matched(sixty, seed=1)[0] != partner).any()
    assert (matched(sixty, purpose="another")[0] != partner).any()


def test_nobody_to_match() -> None:
    empty = Graph.from_edges(np.empty((0, 2), np.int64), devices=5)
    partner, ledger = matched(empty)
    assert (partner == NOBODY).all()
    assert ledger.messages_sent.sum() == 0
    # One edge among devices that have none: it is found, and nobody else is.
    single = Graph.from_edges(np.array([[3, 7]]), devices=10)
    partner, _ = matched(single)
    assert check(single, partner) == {(3, 7)}


def test_only_candidates_are_asked(sixty: Graph) -> None:
    """Candidates need not be all neighbours; a device without any may still be found."""
    edges = sixty.edge_list()[::3]

    def device(shard: Shard, endpoint: Endpoint) -> Program[np.ndarray]:
        mine = edges[np.isin(edges[:, 0], shard.devices)]  # the smaller end proposes only
        rows = shard.local(mine[:, 0])
        order = np.lexsort((mine[:, 1], rows))
        return match(shard, rows[order], mine[order, 1], "some")

    with listening() as wire:
        parts, _ = on_shards(sixty, device, 2)
    asked = {(message.sender, message.receiver) for message in wire.all_of("strict/proposal")}
    assert asked <= set(map(tuple, edges.tolist()))
    found = check(sixty, whole(parts))
    assert found
    assert found <= asked


def test_share_of_lone_pairs() -> None:
    """A pair with no other neighbours meets when one end proposes and the other does not: 1/2."""
    pairs = 4000
    for rounds in (1, 2, 4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lumos.strict.link.encoder.ROUNDS", rounds)
            partner, _ = matched(pairs_only(pairs))
        share = (partner != NOBODY).mean()
        expected = 1 - 0.5**rounds
        assert share == pytest.approx(expected, abs=5 * math.sqrt(0.25 / pairs))


def test_most_devices_of_a_dense_graph_are_matched() -> None:
    graph = random_graph(600, 9000, 0)
    partner, _ = matched(graph)
    assert (partner != NOBODY).mean() > 0.75
    best = nx.max_weight_matching(nx.Graph(random_graph(60, 200, 0).edge_list().tolist()), True)
    small = check(random_graph(60, 200, 0), matched(random_graph(60, 200, 0))[0])
    assert 0.6 * len(best) < len(small) <= len(best)


def test_every_edge_of_a_regular_graph_is_as_likely() -> None:
    """Leaves of stars are alike: which of three the centre meets is uniform."""
    stars = 1500
    centre = 4 * np.arange(stars)
    edges = np.concatenate([np.stack([centre, centre + leaf], axis=1) for leaf in (1, 2, 3)])
    partner, _ = matched(Graph.from_edges(edges, devices=4 * stars))
    met = partner[centre] - centre
    counts = np.bincount(met[partner[centre] != NOBODY], minlength=4)[1:]
    assert counts.sum() > 0.98 * stars
    assert (np.abs(counts - counts.sum() / 3) < 5 * math.sqrt(stars * 2 / 9)).all()


def test_the_accepted_proposal_is_drawn_uniformly() -> None:
    (shard,) = (part for part, _ in on_shards(pairs_only(2), _nothing)[0])
    receiver = np.array([1, 1, 1, 3])
    for place in range(3):
        chance = np.full(4, (place + 0.5) / 3)
        accepted = _accepted(shard, receiver, np.ones(4, np.bool_), chance)
        assert_array_equal(accepted, [place == 0, place == 1, place == 2, True])
        busy = np.array([True, False, True, True])
        assert_array_equal(_accepted(shard, receiver, busy, chance), [0, 0, 0, 1])


def _nothing(shard: Shard, endpoint: Endpoint) -> Program[None]:
    yield from ()


def test_proposals_tell_one_bit_each_and_every_one_is_answered(sixty: Graph) -> None:
    with listening() as wire:
        partner, ledger = matched(sixty)
    proposals, replies = wire.of("strict/proposal"), wire.of("strict/reply")
    assert len(proposals) == len(replies) == ROUNDS
    for asked, told in zip(proposals, replies, strict=True):
        assert {(m.sender, m.receiver) for m in asked} == {(m.receiver, m.sender) for m in told}
        assert len({m.sender for m in asked}) == len(asked), "one proposal at a time"
    accepted = [m for messages in replies for m in messages if m.body == b"\1"]
    assert len(accepted) == (partner != NOBODY).sum() / 2
    assert {line.door for line in ledger.topics.values()} == {"control"}


LIAR = 7


def with_liar(graph: Graph, change: Callable[[Outbox], Outbox]) -> np.ndarray:
    """[devices] partners, where one device sends what it likes."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[np.ndarray]:
        program = match(shard, shard.owner, shard.neighbours, "test")
        return changed(program, change) if LIAR in shard.devices else program

    parts, _ = on_shards(graph, device, graph.devices)
    return whole(parts)


def check_others(graph: Graph, partner: np.ndarray) -> None:
    """Honest devices are matched along edges, and agree on it."""
    near = {*map(tuple, graph.edge_list().tolist())}
    for one, other in enumerate(partner.tolist()):
        if one != LIAR and other not in (NOBODY, LIAR):
            assert (min(one, other), max(one, other)) in near
            assert partner[other] == one


def test_a_liar_that_proposes_to_everybody_breaks_no_other_pair(sixty: Graph) -> None:
    """Nobody knows whose candidate it is, so the liar may be accepted; once by each at most."""
    others = np.array(sorted(set(range(sixty.devices)) - {LIAR}))

    def propose(outbox: Outbox) -> Outbox:
        if outbox.topic is not PROPOSAL:
            return outbox
        return PROPOSAL.send(np.full(len(others), LIAR), others, 0)

    partner = with_liar(sixty, propose)
    assert (partner == LIAR).sum() > 10
    check_others(sixty, partner)


@pytest.mark.parametrize("answer", ["nothing", "to somebody else", "yes to all"])
def test_a_lying_reply_costs_its_proposers_a_partner_and_nothing_else(
    sixty: Graph, answer: str
) -> None:
    def reply(outbox: Outbox) -> Outbox:
        if outbox.topic is not REPLY:
            return outbox
        receiver = outbox.batch.receiver
        if answer == "nothing":
            return REPLY.nothing()
        if answer == "to somebody else":
            receiver = (receiver + 13) % sixty.devices
            receiver[receiver == LIAR] += 1
        return REPLY.send(np.full(len(receiver), LIAR), receiver, np.ones(len(receiver), np.uint8))

    partner = with_liar(sixty, reply)
    check_others(sixty, partner)
    if answer != "yes to all":
        proposed_by = partner[LIAR]
        assert not set(np.flatnonzero(partner == LIAR).tolist()) - {proposed_by}
