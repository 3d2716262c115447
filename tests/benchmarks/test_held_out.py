"""The held-out battery: graphs are of the families they name, and tables tell chance apart."""

from typing import Any

import numpy as np
import pytest
from benchmarks.held_out import EDGES, FEATURES, GRAPHS, MORE, Drawn, families
from reproduce.held_out_tables import BEFORE, CHOICES, below_local, choice_rows, family_rows, gains

OTHER = 1
"""Number of a battery that nothing else uses."""


def drawn(edges: str) -> Drawn:
    """The first small graph of a family of edges."""
    some = (Drawn(number, OTHER) for number in range(GRAPHS) if families(number)[0] == edges)
    return next(one for one in some if one.size < 6000)


def test_every_family_of_edges_meets_every_family_of_features() -> None:
    assert {families(number) for number in range(GRAPHS)} == {
        (edges, features) for edges in EDGES for features in FEATURES
    }
    assert {families(MORE + number)[0] for number in range(30)} == {
        "heterophilous",
        "mixed classes",
        "structureless",
    }


@pytest.mark.parametrize("edges", EDGES)
def test_graphs_are_of_their_family(edges: str) -> None:
    one = drawn(edges)
    graph = one.graph()
    labels, ends = np.asarray(graph.labels), graph.edge_list()
    same = float((labels[ends[:, 0]] == labels[ends[:, 1]]).mean())
    chance = float(((np.bincount(labels) / graph.devices) ** 2).sum())
    if edges == "heterophilous":
        assert same < chance / 2
    elif edges == "structureless":
        weight = np.bincount(labels, np.bincount(ends.ravel(), minlength=graph.devices))
        expected = float(((weight / weight.sum()) ** 2).sum())
        assert abs(same - expected) < 4 * (expected / len(ends)) ** 0.5
    elif edges != "mixed classes":
        assert same > chance + 0.1
    degrees = np.bincount(ends.ravel(), minlength=graph.devices)
    heavy = degrees.max() > 15 * degrees.mean()
    assert heavy == (edges not in ("geometric", "ring"))
    assert graph.devices == one.size


def result(gain: float, noise: list[float], few: float = 50.0) -> dict[str, Any]:
    """One alternative to the first choice, on as many graphs as there are numbers."""
    graphs = {}
    for number, more in enumerate(noise):
        now = {"strict": 80.0 + more, "local": 82.0, "control": 70.0}
        cells = {"now": now, CHOICES[0].key: {"strict": 80.0 - gain}, BEFORE.key: now}
        graphs[str(number)] = {
            "edges": "ring",
            "features": "one-hot",
            "devices": 1000,
            "classes": 4,
            "few": 0.1,
            "scores": {"half": cells, "few": {**cells, "now": {**now, "strict": few}}},
        }
    return {"graphs": graphs}


def test_a_choice_is_confirmed_or_loses_by_two_standard_errors() -> None:
    for gain, verdict in ((2.0, "confirmed"), (0.1, "not told apart"), (-2.0, "**loses**")):
        found = result(gain, [0.5, -0.5, 0.3, -0.3])
        for graph in found["graphs"].values():
            del graph["scores"]["few"]
        (row,) = choice_rows(found)
        assert row[2] == "4"
        assert row[3] == f"{gain:+.2f} ± {np.std([0.5, -0.5, 0.3, -0.3], ddof=1) / 2:.2f}"
        assert row[4] == verdict


def test_graphs_on_which_an_alternative_is_the_same_run_do_not_count() -> None:
    found = result(0.0, [0.0, 0.0, 1.0], few=80.0)
    assert gains(found, CHOICES[0], ("half", "few")) == [1.0]


def test_runs_below_their_local_model_are_found() -> None:
    found = result(0.0, [0.0, 5.0], few=90.0)
    ((points, error, graph, split),) = below_local(found)
    assert (round(points, 6), graph, split) == (-2.0, found["graphs"]["0"], "half")
    assert error == pytest.approx(100 * ((0.8 * 0.2 + 0.82 * 0.18) / 250) ** 0.5)
    ((family, graphs, *scores),) = family_rows(found)
    assert (family, graphs, scores[0]) == ("ring", "2", "82.5")
    assert scores[3] == "+0.5 ± 2.5"
