"""Attacks on strict classification: within every bound on the real system, above it on twins that
are broken on purpose."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import lumos
from lumos.audit import ATTACKS, AuditReport, AuditRow, Scene
from lumos.audit.attacks import neighbours, replay, whole_run
from lumos.audit.harness import printed
from lumos.device.randomness import PublicRandomness
from lumos.graph import Graph
from lumos.ldp.labels import LabelDraws
from lumos.secagg.ideal import IdealCoordinator
from lumos.secagg.noise import Noise
from lumos.strict import messages as propagated_labels
from lumos.strict.classify import labels as noisy_labels
from lumos.strict.classify import trainer as classify_trainer
from lumos.strict.classify.stages import EvidenceWeightsStage
from lumos.strict.classify.trainer import StrictClassifier
from lumos.strict.stages import Stage
from lumos.strict.sums import StrictCoordinator
from lumos.training.problem import Problem


@pytest.fixture(scope="module")
def graph() -> Graph:
    return lumos.load("demo:600")


def scene_of(graph: Graph, **settings: Any) -> Scene:
    return Scene(graph, settings, tasks=["classify"])


def report(rows: list[AuditRow]) -> AuditReport:
    return AuditReport(
        graph="",
        devices=0,
        profile="strict",
        settings={},
        seed=0,
        rows=rows,
        seconds={},
        lumos="",
    )


def attacked(name: str, graph: Graph, **settings: Any) -> AuditReport:
    return report(list(ATTACKS[name].run(scene_of(graph, **settings))))


def exceeded(found: AuditReport, *words: str) -> bool:
    """Whether a row about all of these exceeds its bound."""
    return any(all(word in row.about for word in words) for row in found.exceeded)


DIGITS = {"mechanism": "digits", "propagated_labels": 1}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("whole-run", {}),
        ("features", {}),
        ("propagated-labels", {}),
        ("whole-run", DIGITS),
        pytest.param("features", DIGITS, marks=pytest.mark.long),
        ("propagated-labels", DIGITS),
    ],
)
def test_the_real_system_keeps_every_bound(
    name: str, settings: dict[str, Any], graph: Graph
) -> None:
    found = attacked(name, graph, **settings)
    assert found.rows
    assert not found.exceeded
    assert any(row.bound is not None for row in found.rows)


def test_exact_sums_have_no_bound_on_features(graph: Graph) -> None:
    assert attacked("features", graph, protect="none").rows == []


def test_labels_in_the_clear_are_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_the_clear(self: LabelDraws, *epsilons: float) -> np.ndarray:
        return np.stack([self.labels] * len(epsilons))

    monkeypatch.setattr(LabelDraws, "at", in_the_clear)
    assert exceeded(attacked("randomized-labels", graph), "label of a training device")
    assert exceeded(attacked("whole-run", graph), "training devices", "and its randomized label")


def test_sums_of_true_labels_are_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Randomized labels are randomized, sums use the label, and hardly any noise hides it."""
    real = noisy_labels.draw_labels

    def leaking(shard: Any, labels: Any, *rest: Any) -> Any:
        drawn = real(shard, labels, *rest)
        return drawn._replace(values=np.where(drawn.values < 0, -1, labels))

    monkeypatch.setattr(classify_trainer, "draw_labels", leaking)
    found = attacked("whole-run", graph, label_epsilon=1.0, feature_epsilon=200.0)
    assert exceeded(found, "training devices", "without its randomized label")
    # At the defaults sums hide it, and the draws show it.
    found = attacked("whole-run", graph)
    assert exceeded(found, "validation devices", "label that sums use")


def test_a_label_that_is_read_again_is_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made, vectors = StrictClassifier.__init__, EvidenceWeightsStage.vectors

    def remembering(
        self: Any, shard: Any, endpoint: Any, private: Any, *rest: Any, **kw: Any
    ) -> Any:
        made(self, shard, endpoint, private, *rest, **kw)
        self.remembered = private.labels

    def reading(self: Any, state: Any) -> Any:
        labels = state.remembered[self.participants(state), None]
        return 0.99 * vectors(self, state) + 0.001 * labels

    monkeypatch.setattr(StrictClassifier, "__init__", remembering)
    monkeypatch.setattr(EvidenceWeightsStage, "vectors", reading)
    assert exceeded(attacked("whole-run", graph), "vectors change with the label")


def test_a_randomized_label_with_less_noise_is_found(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not attacked("randomized-labels", graph).exceeded
    real = LabelDraws.at

    def louder(self: LabelDraws, *epsilons: float) -> np.ndarray:
        return real(self, *(max(epsilon, 8.0) for epsilon in epsilons))

    monkeypatch.setattr(LabelDraws, "at", louder)
    assert exceeded(attacked("randomized-labels", graph), "label of a training device")


def test_randomized_labels_of_digits_are_read(graph: Graph) -> None:
    """Of 30 classes in two places of base 6: one digit, and the likeliest label that has it."""
    labels = np.random.default_rng(0).integers(0, 30, graph.devices)
    many = Graph.from_edges(
        graph.edge_list(), devices=graph.devices, features=graph.features, labels=labels
    )
    row, _ = attacked("randomized-labels", many, mechanism="digits").rows
    assert row.chance is not None
    assert row.bound is not None
    assert row.chance + 0.1 < row.value < row.bound


def test_few_devices_outside_make_no_false_alarm() -> None:
    """None of three test devices was guessed: the bound multiplied odds of 0."""
    found = attacked("whole-run", lumos.load("demo:12"))
    (row,) = (row for row in found.rows if "word of few" in row.about)
    assert row.chance == 0
    assert not found.exceeded


@pytest.mark.parametrize("stage", ["encoder", "evidence_weights"])
def test_noise_of_one_stage_a_fifth_too_small_is_found(
    stage: str, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = StrictCoordinator._add_up

    def quieter(self: Any, of: Stage, step: int, randomness: int) -> Any:
        total, factor = Noise.total.fget, 0.8 if of.name == stage else 1.0  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(Noise, "total", property(lambda noise: factor * total(noise)))
            sums = real(self, of, step, randomness)
            sent = next(sums)  # the noise is drawn before anything is awaited
        return (yield from _continued(sums, sent))

    monkeypatch.setattr(StrictCoordinator, "_add_up", quieter)
    found = attacked("features", graph)
    assert [row.about for row in found.exceeded if "numbers of" in row.about] == [
        row.about for row in found.rows if f"numbers of {stage}:" in row.about
    ]


def _continued(program: Any, sent: Any) -> Any:
    """The rest of a program whose first step was taken."""
    while True:
        received = yield sent
        try:
            sent = program.send(received)
        except StopIteration as end:
            return end.value


def test_noise_left_out_is_found(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    real = IdealCoordinator.sum
    monkeypatch.setattr(IdealCoordinator, "sum", lambda self, width, *_noise: real(self, width))
    found = attacked("features", graph)
    assert exceeded(found, "features of one of the training devices", "guessed")


def test_noise_from_a_public_seed_is_found(graph: Graph) -> None:
    """A simulation's noise comes from the run seed; whoever knows it takes it off."""
    recorded = scene_of(graph).recorded("classify")
    run = replay.replay_of(recorded)
    problem = Problem.of(
        graph=graph,
        keep=np.zeros(len(graph.neighbours), np.bool_),
        roles=recorded.roles,
        held_back=np.empty((0, 2), np.int64),
        classes=graph.class_count,
        seed=0,
        shards=1,
    )
    name = recorded.config.profile.randomness(problem, recorded.config, control=False)
    totals = []
    for step, (total, noise) in enumerate(zip(run.seen.totals, run.noises, strict=True)):
        assert noise is not None
        drawn = (
            PublicRandomness(0).generator(f"ideal noise{name}", step).standard_normal(len(total))
        )
        totals.append(total - noise.total * drawn)
    known = replace(run, seen=run.seen._replace(totals=totals))
    generator = np.random.default_rng(0)
    found = report(list(whole_run.feature_rows(recorded, known, generator)))
    assert exceeded(found, "features of one of the training devices", "guessed")
    again = report(list(whole_run.feature_rows(recorded, run, generator)))
    assert not again.exceeded


def test_propagated_labels_that_are_not_randomized_are_found(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loud(shard: Any, evidence: Any, mechanism: Any, number: int) -> Any:
        return propagated_labels.propagated_labels(
            shard, evidence, replace(mechanism, epsilon=20.0), number
        )

    monkeypatch.setattr(classify_trainer, "propagated_labels", loud)
    found = attacked("propagated-labels", graph)
    assert exceeded(found, "propagated label 1 before")
    assert exceeded(found, "propagated label 2 before")
    quiet = attacked("propagated-labels", graph, propagated_epsilon=1.0)
    assert exceeded(quiet, "ε that the frequencies of propagated label 1")


def test_degrees_in_propagated_labels_are_found(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def degrees(shard: Any, evidence: Any, mechanism: Any, number: int) -> Any:
        few = np.minimum(shard.degree // 3, mechanism.size - 1)
        return mechanism.release(
            few, np.full((len(shard), mechanism.randomness), 2**32 - 1, np.uint32)
        )

    def below_median() -> float:
        rows = attacked("neighbourhood", graph).rows
        return next(row.value for row in rows if "median" in row.about)

    honest = below_median()
    monkeypatch.setattr(classify_trainer, "propagated_labels", degrees)
    assert below_median() > 0.95 > honest + 0.1


def test_edges_are_rebuilt_where_messages_tell_the_community(graph: Graph) -> None:
    """As many guesses as edges: all right where messages name cliques, at chance where constant."""
    clique = np.repeat(np.arange(8), 20)
    one, two = np.triu_indices(160, 1)
    edges = np.stack([one, two], axis=1)[clique[one] == clique[two]]
    none, same = np.full(160, -1), np.zeros(160, np.int64)
    found = neighbours.rebuilt([none, clique], edges)
    assert found.hits == pytest.approx(found.edges, rel=0.2)  # pairs of one device are counted too
    # A constant tells nothing; half of the cliques tells twice as much.
    for sent, times in (([none, same], 1), ([clique % 2 - 1, same], 2)):
        found = neighbours.rebuilt(sent, edges)
        expected = times * found.edges / found.pairs
        assert found.hits / found.edges == pytest.approx(expected, rel=0.3)
    rows = attacked("reconstruction", graph).rows
    ours, rival = (row.value for row in rows)
    assert ours < 0.15
    assert rival > 0.9


def test_several_runs_with_an_account(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of(graph)
    rows = [
        neighbours.account_row(scene, what, levels)
        for what, levels in (("larger", (2.0, 3.0)), ("the same", (3.0,) * 4))
    ]
    assert not report(rows).exceeded
    real = neighbours.short

    def forgetful(scene: Scene, number: int, **changes: Any) -> Any:
        (changes["account"] / "account.npz").unlink(missing_ok=True)
        return real(scene, number, **changes)

    monkeypatch.setattr(neighbours, "short", forgetful)
    twin = neighbours.account_row(scene, "the same", (3.0,) * 4)
    assert report([twin]).exceeded


def test_a_smaller_epsilon_later_prints_what_the_first_run_told(graph: Graph) -> None:
    row = neighbours.account_row(scene_of(graph), "smaller", (4.0, 1.0))
    assert not report([row]).exceeded


def test_runs_without_an_account_add_up(graph: Graph) -> None:
    row = neighbours.free_row(scene_of(graph, label_epsilon=1.0), 1.0)
    assert row.bound is not None
    assert not report([row]).exceeded
    assert row.value > neighbours.most_right(1.0, graph.class_count) + 0.2


def test_a_new_device_receives_the_same_every_time(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "PREDICTIONS", 8)
    assert not report([neighbours.new_device_row(scene_of(graph))]).exceeded
    real = StrictClassifier.load_state_dict

    def redrawn(self: StrictClassifier, state: Any, part: Any = "run") -> None:
        classes = self.schedule.classes
        fresh = np.random.default_rng().integers(
            0, classes, state["propagated_labels"].shape, np.uint8
        )
        real(self, {**state, "propagated_labels": fresh}, part)

    monkeypatch.setattr(StrictClassifier, "load_state_dict", redrawn)
    assert report([neighbours.new_device_row(scene_of(graph))]).exceeded


def test_likelihoods_are_those_of_written_out_vectors() -> None:
    """An oracle: distances and inner products of outer products, by dense arrays."""
    graph = lumos.load("demo:60")
    run = replay.replay_of(scene_of(graph).recorded("classify"))
    values = run.labels.values
    other = replay.replay(
        run, labels=run.labels._replace(values=np.where(values < 0, -1, (values + 1) % 3))
    )
    mu, logarithm = np.zeros((2, graph.devices))
    for number, noise in enumerate(run.noises):
        assert noise is not None
        change = np.zeros((graph.devices, len(run.seen.totals[number])))
        for sign, some in ((1, run), (-1, other)):
            part = some.parts[number]
            vectors: Any = part.vectors
            change[part.devices] += sign * getattr(vectors, "dense", lambda v=vectors: v)()
        residual = run.noise_of(number)
        mu += (change**2).sum(axis=1) / (noise.sigma * noise.clip) ** 2
        with_other = ((residual + change) ** 2).sum(axis=1) - (residual**2).sum()
        logarithm -= with_other / (2 * noise.total**2)
    assert np.allclose(replay.moved(run, other), np.sqrt(mu), atol=1e-6)
    assert np.allclose(replay.log_likelihood(run, other), logarithm, atol=1e-6)


def test_edges_are_no_more_cases_than_there_are() -> None:
    """An oracle: n²/|Σ ĉ|² over changes of pairs, written out."""
    graph = lumos.load("demo:60")
    run = replay.replay_of(scene_of(graph).recorded("classify"))
    edges = whole_run.apart(graph, np.random.default_rng(0))
    every = graph.edge_list()
    kept = ~(every[:, None] == edges[None]).all(axis=2).any(axis=1)
    without = replay.replay(run, graph=replay.changed(graph, edges=every[kept]))
    changes = []
    for one, two, noise in zip(run.parts, without.parts, run.noises, strict=True):
        assert noise is not None
        dense = [getattr(part.vectors, "dense", lambda p=part: p.vectors)() for part in (one, two)]
        change = np.zeros((graph.devices, dense[0].shape[1]))
        change[one.devices] = (dense[0] - dense[1]) / noise.total
        changes.append(change[edges].sum(axis=1))
    whole = np.concatenate(changes, axis=1)
    length = np.linalg.norm(whole, axis=1)
    unit = whole[length > 0] / length[length > 0, None]
    expected = len(unit) ** 2 / (unit.sum(axis=0) ** 2).sum()
    found = replay.independent_cases(run, without, edges)
    assert found == min(len(unit), int(expected))
    for edge in edges[length > 0]:
        assert replay.independent_cases(run, without, edge[None]) == 1


def test_bound_of_a_guess_is_that_of_the_best_mechanism() -> None:
    """Randomized response reaches it; with δ a mechanism that tells all with probability δ does."""
    classes, epsilon, delta = 4, 1.5, 0.1
    p = np.exp(epsilon) / (np.exp(epsilon) + classes - 1)
    assert neighbours.most_right(epsilon, classes) == pytest.approx(p)
    both = delta + (1 - delta) * p
    assert neighbours.most_right(epsilon, classes, delta=delta) == pytest.approx(both)
    assert neighbours.most_right(0.0, 2, delta=delta) == pytest.approx(0.5 * (1 + delta))


@pytest.mark.parametrize("delta", [0.0, 0.05])
@pytest.mark.parametrize("epsilon", [0.3, 1.5, 3.0])
def test_bound_of_a_guess_is_that_of_a_linear_programme(epsilon: float, delta: float) -> None:
    """All channels from label to guess with P[g | c] ≤ e^ε P[g | d] + δ, for uneven labels."""
    for prior in np.random.default_rng(0).dirichlet(np.ones(4), 8):
        k = len(prior)
        limits = []
        for guess in range(k):
            for one, other in itertools.permutations(range(k), 2):
                limit = np.zeros((k, k))
                limit[one, guess], limit[other, guess] = 1, -np.exp(epsilon)
                limits.append(limit.ravel())
        whole = np.kron(np.eye(k), np.ones(k))
        best = linprog(
            -np.diag(prior).ravel(), limits, np.full(len(limits), delta), whole, np.ones(k)
        )
        found = neighbours.most_right(epsilon, k, prior, delta)
        assert best.fun is not None
        assert found == pytest.approx(-best.fun, abs=1e-7)
        assert found <= neighbours.raised_odds(epsilon, prior.max(), k, delta) + 1e-9 or delta


def test_printed_cells_are_read(graph: Graph) -> None:
    run = scene_of(graph).recorded("classify").run
    assert printed(run, "label replaced", "training devices") == (3.0, 0.0)
    assert printed(run, "features replaced", "training devices") == (8.0, 1e-5)
    assert printed(run, "degree", "training devices") is None
    assert printed(run, "label replaced", "other devices") is None


def test_edges_apart_share_no_device(graph: Graph) -> None:
    edges = whole_run.apart(graph, np.random.default_rng(0))
    assert len(np.unique(edges)) == edges.size > graph.devices / 8
    there = {tuple(edge) for edge in graph.edge_list()}
    assert all(tuple(edge) in there for edge in edges)


def test_pairs_are_a_sample_of_all(graph: Graph) -> None:
    every, some = neighbours.NeighbourPairs.of(graph), neighbours.NeighbourPairs.of(graph, 50)
    assert len(every.sender) == len(graph.neighbours)
    keys = set(zip(every.attacker.tolist(), every.sender.tolist(), strict=True))
    assert set(zip(some.attacker.tolist(), some.sender.tolist(), strict=True)) < keys
