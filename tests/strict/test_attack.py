"""Attacks on the whole of a run: all sums, randomized labels and propagated labels, against the
table of guarantees.

**Label.** The informed attacker knows everything but one device's label: all other data, the
device's own features and edges. It sees every sum and every message, and computes the exact
likelihood of each label. **Features, edges.** The vectors that other data would have added to the
same sums have an exact distance, and with it an exact μ. No cell of the table may be exceeded, and
some must nearly be reached, or the attack would prove nothing.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from tests.narrow import present
from tests.strict.replay import (
    CLASSES,
    WORDS,
    little_graph,
    same_run,
    truth_probability,
    whole_run,
    written_out,
)
from tests.strict.strictly import strict

from lumos.audit.attacks.replay import changed, log_likelihood, moved, mu_of
from lumos.audit.attacks.whole_run import InformedGuesses, apart
from lumos.graph import Graph
from lumos.secagg.parameters import FixedPoint
from lumos.strict.guarantees import classify_guarantees as guarantees
from lumos.training.split import Role

SEEDS = 2
MARGIN = 3.5
"""Standard errors."""


def informed(seed: int, **settings: Any) -> InformedGuesses:
    """All sums and randomized labels of a run, and all labels equally likely before."""
    graph = little_graph(seed, devices=400)
    return InformedGuesses.of(whole_run(graph, seed, **{"epochs": 31, **settings}))


def by_randomized_label(guesses: InformedGuesses) -> np.ndarray:
    """[training devices] whether the randomized label is the label."""
    here = guesses.run.roles == Role.TRAIN
    right: np.ndarray = (guesses.run.seen.randomized_labels == guesses.run.graph.labels)[here]
    return right


def test_informed_attacker_has_no_more_than_the_randomized_label() -> None:
    all_guesses = [informed(seed, label_epsilon=3.0) for seed in range(SEEDS)]
    bound = truth_probability(3.0, CLASSES)
    for role in (Role.TRAIN, Role.VALIDATION):
        right = np.concatenate(
            [guesses.right(role, randomized_label=True) for guesses in all_guesses]
        )
        assert right.mean() < bound + MARGIN * np.sqrt(bound * (1 - bound) / len(right))
    for guesses in all_guesses:
        # No two labels are further apart than ε, whatever was seen.
        posterior = guesses.posterior(randomized_label=True)
        assert posterior.min() >= -3.0 - 1e-9
        # Whoever has the randomized label learns nothing from the sums.
        here = guesses.run.seen.randomized_labels >= 0
        randomized_labels = guesses.run.seen.randomized_labels[here]
        alone = np.log(guesses.run.schedule.label_form.table(3.0)[:, randomized_labels].T)
        assert np.allclose(posterior[here], alone - alone.max(axis=1, keepdims=True), atol=1e-9)
        told = here[guesses.run.roles == Role.TRAIN]  # all but devices without a neighbour
        right = guesses.right(Role.TRAIN, randomized_label=True)
        assert np.array_equal(right[told], by_randomized_label(guesses)[told])


@pytest.mark.parametrize("settings", [{}, {"label_epsilon": 5.0}, {"mechanism": "digits"}])
def test_true_labels_are_not_read_after_the_draw(settings: dict[str, Any]) -> None:
    """Other labels behind the same draws: every vector, sum, randomized label and propagated label
    is the same."""
    graph = little_graph(3)
    run = whole_run(graph, 3, **settings)
    poisoned = changed(graph, labels=(present(graph.labels) + 1) % CLASSES)
    again = whole_run(poisoned, 3, roles=run.roles, labels=run.labels, **settings)
    assert same_run(run, again)
    assert not same_run(run, whole_run(poisoned, 3, roles=run.roles, **settings))


def test_labels_of_other_classes_are_drawn_anew(tmp_path: Path) -> None:
    """The same numbers, other meanings: equal randomized labels would say that the numbers are
    equal."""
    graph = little_graph(4)
    account = {"account": tmp_path, "lifetime_epsilon": 9.0}

    def released(names: str, **settings: Any) -> np.ndarray:
        named = Graph.from_edges(
            graph.edge_list(),
            devices=graph.devices,
            features=graph.features,
            labels=graph.labels,
            classes=list(names),
        )
        return strict(named, **account, **settings).model.kept["released"]

    first, again, others = released("abcd"), released("abcd", clip=0.4), released("efgh")
    sent = first >= 0
    assert np.array_equal(first, again)
    kept = truth_probability(3.0, CLASSES)
    expected = kept**2 + (1 - kept) ** 2 / (CLASSES - 1)  # of two independent draws
    error = np.sqrt(expected * (1 - expected) / sent.sum())
    assert abs((first == others)[sent].mean() - expected) < MARGIN * error
    assert expected + MARGIN * error < 1


def other_rows(features: np.ndarray, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows that a device might have had instead."""
    devices = len(features)
    single = np.eye(WORDS)[generator.integers(0, WORDS, devices)]
    return {
        "of another device": features[generator.permutation(devices)],
        "all other words": 1 - features,
        "one word": single,
        "no words": np.zeros_like(features),
        "the opposite": -features,
        "tiny": 1e-22 * single,
    }


@pytest.mark.parametrize(
    ("signs", "scaling", "least"),
    [
        ("nonnegative", "none", 0.99),
        ("signed", "none", 0.95),
        ("signed", "standard", 0.9),
        ("nonnegative", "size", 0.99),
    ],
)
def test_other_features_stay_within_the_account(signs: str, scaling: str, least: float) -> None:
    """All devices, several seeds and rows: the exact μ of the whole run, adaptively."""
    largest = dict.fromkeys((Role.TRAIN, Role.VALIDATION), 0.0)
    for seed in range(2):
        graph = little_graph(seed, signed=signs == "signed")
        run = whole_run(graph, seed, signs=signs, scaling=scaling)
        assert len(run.parts) - {"none": 0, "size": 1, "standard": 5}[scaling] == 63
        rows = other_rows(np.asarray(graph.features), np.random.default_rng(seed))
        for features in rows.values():
            other = changed(graph, features=features.astype(np.float32))
            mu = moved(run, whole_run(other, given=run))
            assert not mu[run.roles == Role.TEST].any()
            for role in largest:
                here = run.roles == role
                share = (mu[here] / mu_of(run, "features")[here]).max()
                largest[role] = max(largest[role], share)
    assert max(largest.values()) <= 1
    assert largest[Role.TRAIN] > least
    assert largest[Role.VALIDATION] > 0.5


def test_opened_sums_tell_features_apart_as_well_as_noise_allows() -> None:
    """A canary audit on real sums: this row or that one, by all sums together.

    The best attacker is right with probability Φ(μ/2), for the noise that was really added.
    """
    right, expected, bound = [], [], []
    for seed in range(4):
        graph = little_graph(10 + seed)
        run = whole_run(graph, seed)
        features = np.roll(np.asarray(graph.features), 1, axis=1)
        other = whole_run(changed(graph, features=features), given=run)
        here = run.roles == Role.TRAIN
        right.append((log_likelihood(run, other) < 0)[here])
        noise = present(run.noises[0])
        mu = moved(run, other)[here]
        expected.append(ndtr(mu * (noise.sigma * noise.clip / noise.total) / 2))
        bound.append(ndtr(mu_of(run, "features")[here] / 2))
    found = np.concatenate(right)
    error = np.sqrt(0.25 / len(found))
    # Devices share the noise of a run, so their successes are not independent: twice the margin.
    assert abs(found.mean() - np.concatenate(expected).mean()) < 2 * MARGIN * error
    assert (np.concatenate(expected) <= np.concatenate(bound)).all()


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_every_sum_has_noise_of_its_own(aggregate: str) -> None:
    graph = little_graph(5, devices=30)
    run = whole_run(graph, 5, aggregate=aggregate, encoder_epochs=3, epochs=12)
    noises = [
        run.noise_of(number) / present(noise).total for number, noise in enumerate(run.noises)
    ]
    assert len(noises) == 14
    whole = np.concatenate(noises)
    assert abs(whole.std() - 1) < MARGIN / np.sqrt(2 * len(whole))
    for one, two in pairwise(noises):
        width = min(len(one), len(two))
        assert not np.allclose(one[:width], two[:width], atol=1e-3)
        if width > 100:
            assert abs(np.corrcoef(one[:width], two[:width])[0, 1]) < MARGIN / np.sqrt(width)


@pytest.mark.parametrize(
    "settings", [{}, {"propagated_labels": 0, "epochs": 59}, {"tree_network": True, "epochs": 64}]
)
def test_vectors_in_the_sums_or_zeros_stay_within_the_account(settings: dict[str, Any]) -> None:
    run = whole_run(little_graph(6), 6, **settings)
    fixed = FixedPoint.of(run.schedule.config.updates, len(run.roles))
    squares = np.zeros(len(run.roles))
    for number, noise in enumerate(map(present, run.noises)):
        norms = np.linalg.norm(fixed.rounded(written_out(run, number)), axis=1)
        assert norms.max() <= noise.clip  # as the sum encodes them, after rounding
        squares += (norms / (noise.sigma * noise.clip)) ** 2
    assert (np.sqrt(squares) <= mu_of(run, "norm")).all()


def edge_shares(graph: Graph, roles: np.ndarray | None, seed: int, **settings: Any) -> Any:
    """μ of each edge of a matching by the account's, by the roles of its ends; and the run."""
    run = whole_run(graph, seed, roles=roles, **settings)
    chosen = apart(graph, np.random.default_rng(seed))
    gone = {tuple(edge) for edge in chosen}
    rest = np.array([edge for edge in graph.edge_list() if tuple(edge) not in gone])
    without = changed(graph, edges=rest.reshape(-1, 2))
    mu = moved(run, whole_run(without, given=run), chosen)
    ends = np.array([run.roles[edge] for edge in chosen])
    account = mu_of(run, "edge")
    shares = mu / np.maximum([account[edge].sum() for edge in chosen], 1e-300)
    return shares, ends, run


@pytest.mark.parametrize("settings", [{}, {"tree_network": True, "epochs": 64}])
def test_an_edge_stays_within_the_account_of_its_ends(settings: dict[str, Any]) -> None:
    largest: dict[tuple[int, int], float] = {}
    for seed in range(3):
        shares, ends, run = edge_shares(little_graph(20 + seed), None, seed, **settings)
        for share, (one, two) in zip(shares, np.sort(ends, axis=1), strict=True):
            largest[one, two] = max(largest.get((one, two), 0.0), share)
        guaranteed = 2 * max(
            run.schedule.mu("edge", role) for role in (Role.TRAIN, Role.VALIDATION)
        )
        assert guaranteed >= 2 * mu_of(run, "edge").max() - 1e-12
    assert largest[Role.VALIDATION, Role.VALIDATION] > 0.1
    assert max(largest.values()) <= 1


def test_the_account_of_an_edge_of_training_devices_is_reached() -> None:
    """Pairs that know only each other: the user of their edge adds a quarter to one sum."""
    devices = 80
    graph = Graph.from_edges(
        np.arange(devices).reshape(-1, 2),
        devices=devices,
        features=np.eye(8, dtype=np.float32)[np.arange(devices) % 8],
        labels=np.repeat([0, 1], devices // 2),
    )
    roles = np.where(np.arange(devices) % 40 < 32, Role.TRAIN, Role.VALIDATION)
    shares, ends, _ = edge_shares(graph, roles, 0)
    pairs = (ends == Role.TRAIN).all(axis=1)
    assert shares[pairs].max() > 0.499  # of what two ends would add
    assert shares.max() <= 1 + 1e-12


def test_cells_are_the_account_of_the_audit() -> None:
    """What the table prints is what the tests above compare with."""
    run = whole_run(little_graph(7), 7)
    table = guarantees(run.schedule)
    for role, column in (
        (Role.TRAIN, "training devices"),
        (Role.VALIDATION, "validation devices"),
    ):
        for about, question, times, messages in (
            ("features replaced", "features", 1, 0.0),
            ("contribution to the sums zeroed", "norm", 1, 0.0),
            ("edge added or removed", "edge", 1, 4.0 * run.schedule.num_propagated),
        ):
            mu = times * run.schedule.mu(question, role)
            epsilon, delta = present(run.schedule.account(mu))
            (cell,) = (row[column] for row in table if about in row["about"])
            printed = cell.strip("()").split(", ")
            assert epsilon + messages <= float(printed[0]) + 1e-9
            assert float(printed[0]) < 1.01 * (epsilon + messages)
            assert float(printed[1]) == delta
