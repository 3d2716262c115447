"""Attacks on private standardisation by someone who had not written it, over whole runs."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.narrow import present
from tests.strict.accounts import amounts
from tests.strict.linking import identical as same_links
from tests.strict.linking import linked
from tests.strict.linking import sums as link_sums
from tests.strict.replay import whole_run
from tests.strict.strictly import strict, sums

import lumos
from lumos.audit.attacks import link_training as planted_sums
from lumos.audit.attacks.replay import changed, moved, mu_of
from lumos.audit.harness import run_audit
from lumos.errors import BudgetExceeded, InputError, UsageError
from lumos.graph import Graph
from lumos.ldp.account import FEATURES, sums_about
from lumos.runs.predict import NewDevice, predict_new_devices, trained_links
from lumos.secagg.noise import mu_for
from lumos.storage import read_arrays, write_arrays
from lumos.strict.features import (
    BUCKETS,
    CENTRES,
    SCALING_ARRAYS,
    SIZES,
    STAGES,
    FeatureScaling,
    Scaling,
    ScalingSums,
)
from lumos.training.split import Role
from lumos.training.sums import RunSums

BITS = 32
GRID = 2**BITS
EXTREME = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 5e-324, -1e-310, 2.0**-24, -(2.0**-25), 2.0**40, -(2.0**41)),
        *(2.0**-149, 3.4e38, -3.4e38, np.nextafter(2.0, 0), np.inf, -np.inf, 1e-30, 0.3),
    ]
)


def few_features(devices: int = 60, *, sparse: bool = False, seed: int = 0) -> Graph:
    """Three features of different scales, that few devices suffice to learn, and two classes."""
    generator = np.random.default_rng(seed)
    labels = np.arange(devices) % 2
    edges = generator.integers(0, devices, (3 * devices, 2))
    rows = generator.standard_normal((devices, 3)) + 2 * labels[:, None]
    rows = (rows * 10.0 ** np.arange(3) + 20).astype(np.float32)
    features: Any = csr_array(np.abs(rows)) if sparse else rows
    return Graph.from_edges(
        edges[edges[:, 0] != edges[:, 1]], devices=devices, features=features, labels=labels
    )


def rows_of(graph: Graph) -> Any:
    return present(graph.features)


# How long vectors are, and how far they move, in whole steps of the fixed point.


def squared(vectors: np.ndarray) -> Fraction:
    """The largest squared norm, exactly; every number must be on the grid."""
    whole = vectors * GRID
    assert np.array_equal(whole, np.rint(whole))
    rows = ([int(number) for number in row if number] for row in whole)
    return Fraction(max(sum(number**2 for number in row) for row in rows), GRID**2)


@pytest.mark.parametrize("bits", [12, 24, 32, 52])
def test_no_rounding_makes_a_vector_longer(bits: int) -> None:
    """d counts of k steps each: d · k² ≤ 4^bits, and no larger k would do."""
    chosen = np.random.default_rng(0).integers(1, 10**6, 50).tolist()
    for width in {1, 2, 3, 4, 5, 7, 99, 100, 777, 65_536, 65_537, 100_000, *chosen}:
        sums = ScalingSums(np.full((1, width), 9e9), np.array([0]), 1, bits)
        most = float(sums.vectors(CENTRES, each=False).max()) * 2**bits
        whole = int(most)
        assert whole == most
        assert width * whole**2 <= 4**bits < width * (whole + 1) ** 2


def test_too_coarse_a_fixed_point_is_refused() -> None:
    row = np.zeros((1, 17), np.float32)
    with pytest.raises(UsageError, match="too coarse to scale 17 features"):
        ScalingSums(row, np.array([0]), 1, 2)


@pytest.mark.parametrize("width", [1, len(EXTREME), 200])
@pytest.mark.parametrize("octave", [1, 24, 64])
@pytest.mark.parametrize("mean", [0.0, 1e30, -1e30])
def test_no_number_breaks_the_bounds(width: int, octave: int, mean: float) -> None:
    """Any features, also such as graphs refuse, after any sums, also such as noise never makes."""
    generator = np.random.default_rng(width)
    rows = generator.choice(EXTREME, (12, width))
    rows[0], rows[1], rows[2] = 3.4e38, -3.4e38, 0
    sums = ScalingSums(rows, np.arange(12), 12, BITS)
    histogram = np.zeros((width, BUCKETS))
    histogram[:, octave] = 12.0
    with np.errstate(invalid="ignore", over="ignore"):
        for stage, total in ((SIZES, histogram.ravel()), (CENTRES, np.full(width, mean))):
            sums.learn(stage, total, 0.0)
        sizes, means = (sums.vectors(stage, each=True) for stage in (SIZES, CENTRES))
    for vectors, far in ((sizes, 2), (means, 4)):
        assert squared(vectors) <= 1
        assert max(squared(vectors - np.roll(vectors, k, axis=0)) for k in range(12)) <= far
    assert np.array_equal(np.count_nonzero(sizes, axis=1), np.full(12, width))
    scaling = sums.scaling()
    assert np.isfinite(scaling.centre).all()
    assert ((scaling.size > 0) & np.isfinite(scaling.size)).all()


def test_a_feature_that_is_stored_twice_counts_once() -> None:
    """A sparse row may name a column again and again: its device has one count nevertheless."""
    rows = csr_array(
        (np.ones(50, np.float32), np.zeros(50, np.int32), np.array([0, 50, 50])), shape=(2, 1)
    )
    kept: Any = Graph.from_edges([[0, 1]], devices=2, features=rows).features
    assert kept.data.tolist() == [50.0]
    with pytest.raises(InputError, match="finite"):
        Graph.from_edges([[0, 1]], devices=2, features=np.array([[np.inf], [0]]))


# The exact μ of whole runs, for rows that are chosen after the sums.


@pytest.mark.parametrize(
    ("scaling", "signs", "least"),
    [("standard", "signed", 0.9), ("size", "signed", 0.9), ("size", "nonnegative", 0.7)],
)
def test_rows_that_move_most_stay_within_the_account(
    scaling: str, signs: str, least: float
) -> None:
    """Scales are really learnt, and other rows lie opposite, around the centre that was learnt."""
    graph = few_features(240)
    run = whole_run(graph, 1, signs=signs, scaling=scaling)
    assert [part.stage for part in run.parts][: len(STAGES[scaling])] == list(STAGES[scaling])
    training = np.flatnonzero(run.roles == Role.TRAIN)
    sums = ScalingSums(rows_of(graph), training, len(training), BITS, scaling)
    for stage, total, noise in zip(STAGES[scaling], run.seen.totals, run.noises, strict=False):
        sums.learn(stage, total, present(noise).total)
    learnt = sums.scaling()
    assert learnt.learnt
    rows = np.asarray(graph.features, np.float64)
    others = {
        "opposite": 2 * learnt.centre - rows,
        "opposite, of other octaves": learnt.centre - 16 * (rows - learnt.centre),
        "far": np.broadcast_to(learnt.centre - 64 * learnt.size, rows.shape),
        "at the centre": np.broadcast_to(learnt.centre, rows.shape),
        "huge": -3e38 * np.ones_like(rows),
        "tiny": 1e-40 * np.ones_like(rows),
    }
    share = np.zeros(graph.devices)
    account = np.maximum(mu_of(run, "features"), 1e-300)
    for features in others.values():
        other = changed(graph, features=features.astype(np.float32))
        share = np.maximum(share, moved(run, whole_run(other, given=run)) / account)
    assert not share[run.roles == Role.TEST].any()
    assert share.max() <= 1
    assert share[training].max() > least


def test_an_audit_reads_runs_that_scale_features() -> None:
    """The finding: attacks took the first sum for the counts, and broke off."""
    graph = few_features(80)
    report = run_audit(graph, attacks=("whole-run", "features"))
    assert {row.attack for row in report.rows} == {"whole-run", "features"}
    assert not report.exceeded
    assert any("sizes" in row.about for row in report.rows)


@pytest.mark.parametrize("scaling", ["size", "standard"])
def test_links_stay_within_the_account_of_each_stage(scaling: Scaling) -> None:
    found = planted_sums.guesses(2, lumos.Config.of(task="link", scaling=scaling))
    assert list(found)[: len(set(STAGES[scaling]))] == list(dict.fromkeys(STAGES[scaling]))
    for stage, one in found.items():
        assert one.largest <= one.account, stage
        low, high = one.noise.interval(1 - 1e-6)
        assert low <= 1 <= high, stage
    assert found[SIZES].largest > 0.5 * found[SIZES].account


# Noise and randomness.


def totals_of(graph: Graph, **settings: Any) -> list[np.ndarray]:
    """The sums of a run whose training devices' features are all the same, whoever trains."""
    with sums() as opened:
        strict(graph, **settings)
    return [total for _, total in opened]


@pytest.mark.parametrize("aggregate", ["ideal", "secure"])
def test_no_noise_returns_under_another_split_scaling_or_seed(aggregate: str) -> None:
    """All devices are alike, so sums of as many of them differ by their noise alone."""
    devices = 24
    edges = np.stack([np.arange(devices), (np.arange(devices) + 1) % devices], axis=1)
    graph = Graph.from_edges(
        edges,
        devices=devices,
        features=np.full((devices, 2), 7.0, np.float32),
        labels=np.arange(devices) % 2,
    )
    rows = np.arange(devices)
    splits = [
        {"train": rows[:12], "val": rows[12:18], "test": rows[18:]},
        {"train": rows[6:18], "val": rows[18:], "test": rows[:6]},
        {"train": rows[:12], "val": rows[18:], "test": rows[12:18]},
    ]
    variants: list[dict[str, Any]] = [{"split": split} for split in splits]
    variants += [{**variants[0], **change} for change in ({"seed": 1}, {"scaling": "size"})]
    found = [totals_of(graph, aggregate=aggregate, **variant) for variant in variants]
    again = totals_of(graph, aggregate=aggregate, **variants[0])
    assert [total.tobytes() for total in found[0]] == [total.tobytes() for total in again]
    every = [total for totals in found for total in totals]
    for number, one in enumerate(every):
        for other in every[number + 1 :]:
            width = min(len(one), len(other))
            # Vectors are multiples of few numbers; noise that returned would leave equal entries.
            assert not (one[:width] == other[:width]).any()
    sizes = [found[0][place] for place in (0, 2, 4)]  # the same histogram, three times
    for number, one in enumerate(sizes):
        for other in sizes[number + 1 :]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.9


def test_edges_that_move_from_validation_to_test_have_other_randomness() -> None:
    """The finding: with the same training edges, both had one name, so one noise."""
    graph = lumos.load("demo:60")
    held = np.asarray(graph.ids)[graph.edge_list()[:12]]
    totals, names = [], []
    for cut in (4, 8):
        with link_sums() as opened:
            run = linked(graph, split={"val": held[:cut], "test": held[cut:]})
        totals.append([one.total for one in opened])
        names.append(run.about.split.name)
    assert names[0] != names[1]
    for one, other in zip(*totals, strict=True):
        assert not (one == other).any()


# Ideal and secure sums, shards.


@pytest.mark.parametrize(
    ("aggregate", "sparse"),
    [
        ("ideal", False),
        ("ideal", True),
        ("secure", True),
        pytest.param("secure", False, marks=pytest.mark.long),
    ],
)
def test_shards_change_nothing_for_links(sparse: bool, aggregate: str) -> None:
    graph = few_features(14, sparse=sparse)
    with link_sums() as opened:
        one = linked(graph, aggregate=aggregate)
    kind = "size" if sparse else "standard"
    assert str(one.model.weights["feature_scaling"]) == kind
    with link_sums() as there:
        same_links(one, linked(graph, aggregate=aggregate, shards=3))
    assert [each.total.tobytes() for each in opened] == [each.total.tobytes() for each in there]


@pytest.mark.parametrize("scaling", ["size", "standard"])
def test_fused_sums_are_those_of_single_vectors(scaling: str) -> None:
    """Stage by stage, each after the sums before it."""
    graph = few_features(50, sparse=scaling == "size")
    scaled = ScalingSums(rows_of(graph), np.arange(0, 50, 2), 25, BITS, scaling)
    for stage in STAGES[scaling]:
        total = scaled.vectors(stage, each=False)
        assert np.array_equal(scaled.vectors(stage, each=True).sum(axis=0), total)
        scaled.learn(stage, total + 0.25, 0.1)


# The privacy account.


class Stopped(Exception):
    """The owner of a machine pulled the plug."""


@contextmanager
def stopped_after_the_first_sum() -> Iterator[list[np.ndarray]]:
    """Every run ends when its first sum is opened."""
    opened: list[np.ndarray] = []
    original = RunSums.sum

    def once(self: RunSums, *args: Any, **named: Any) -> Any:
        opened.append((yield from original(self, *args, **named)))
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunSums, "sum", once)
        yield opened


@pytest.mark.parametrize("task", ["classify", "link"])
def test_sums_are_charged_before_the_first_is_opened(task: str, tmp_path: Path) -> None:
    """The finding: runs that stopped before their first epoch opened sums that nobody counted."""
    account, graph = tmp_path / "account", few_features(20)
    settings: dict[str, Any] = {
        "account": account,
        "randomness": "system",
        "lifetime_feature_epsilon": 20.0,
    }
    run = {"classify": strict, "link": linked}[task]
    whole = mu_for(8.0, 1e-5) ** 2
    with stopped_after_the_first_sum() as opened:
        for many in range(1, 5):
            with pytest.raises(Stopped):
                run(graph, **settings)
            spent = amounts(account, sums_about(FEATURES))
            assert spent.max() == pytest.approx(many * whole)
        with pytest.raises(BudgetExceeded, match="above the limit for life"):
            run(graph, **settings)
    assert len(opened) == 4  # the fifth was refused before any sum


def test_a_run_that_goes_on_is_charged_once(tmp_path: Path) -> None:
    """Setup is run again when a run is resumed: the same sums, nothing new."""
    account, graph = tmp_path / "account", few_features(20)
    settings: dict[str, Any] = {"account": account, "out": tmp_path / "run", "checkpoint_every": 2}

    def stop(event: Any) -> None:
        if event.epoch == 5:
            raise Stopped

    with sums() as first, pytest.raises(Stopped):
        strict(graph, on_epoch=stop, **settings)
    spent = amounts(account, sums_about(FEATURES))
    with sums() as again:
        strict(graph, resume=True, **settings)
    assert np.array_equal(amounts(account, sums_about(FEATURES)), spent)
    before = len(STAGES["standard"])
    for (step, one), (other_step, other) in zip(first[:before], again[:before], strict=True):
        assert step == other_step
        assert one.tobytes() == other.tobytes()


def test_other_features_or_another_split_cannot_go_on(tmp_path: Path) -> None:
    graph = few_features(20)

    def stop(event: Any) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        strict(graph, out=tmp_path / "run", on_epoch=stop)
    rows = np.array(graph.features)
    rows[0, 0] += 1
    other = changed(graph, features=rows)
    with pytest.raises(UsageError, match="of another graph"):
        strict(other, out=tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match="has another `split`"):
        strict(graph, out=tmp_path / "run", resume=True, split=(0.4, 0.3, 0.3))
    with pytest.raises(UsageError, match="scaling"):
        strict(graph, out=tmp_path / "run", resume=True, scaling="none")


# Finished runs: new devices, files.


def new_device(name: str, *features: float) -> NewDevice:
    return NewDevice(id=name, features=np.array(features, np.float32), neighbours=("1", "2"))


@pytest.mark.parametrize("scaling", ["auto", "none"])
def test_a_strange_new_device_changes_nothing_for_others(scaling: str) -> None:
    graph = few_features(60)
    if scaling == "auto":  # all between 0 and 1, until the new device comes
        graph = changed(graph, features=np.abs(np.tanh(np.asarray(graph.features))))
    run = strict(graph, scaling=scaling)
    guest = new_device("guest", 0.5, 0.2, 0.1)
    alone, _ = predict_new_devices(run, [guest], graph=graph)
    for strange in (new_device("huge", 1e30, 2, 3), new_device("negative", -5, 0, 0)):
        both, _ = predict_new_devices(run, [strange, guest], graph=graph)
        assert both[1].tobytes() == alone[0].tobytes()
        assert np.isfinite(both).all()


def test_new_devices_need_the_scaling_of_the_run() -> None:
    """Without it features would be used as they are, in silence."""
    graph = few_features(60)
    run = strict(graph)
    guest = new_device("guest", 20, 30, 100)
    expected, _ = predict_new_devices(run, [guest], graph=graph)
    assert np.isfinite(expected).all()
    for name in SCALING_ARRAYS:
        run.model.weights.pop(name)
        with pytest.raises(InputError, match="of the features are missing; train again"):
            predict_new_devices(run, [guest], graph=graph)


DAMAGED: dict[str, Any] = {
    "feature_size": [
        np.zeros(3),
        np.full(3, np.inf),
        np.full(3, np.nan),
        -np.ones(3),
        np.ones(3, np.float32),
        np.ones(3, complex),
        np.array(["1", "2", "3"]),
        np.ones((3, 1)),
        np.ones(4),
        np.array(1.0),
    ],
    "feature_centre": [np.full(3, np.nan), np.zeros(3, np.int64), np.array(["a", "b", "c"])],
    "feature_scaling": [np.array("other"), np.array(["standard", "size"]), np.ones(2)],
    "feature_scaled": [np.array([True, False]), np.array(1), np.array("True")],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_arrays_are_refused_in_one_line(name: str) -> None:
    good = FeatureScaling(np.zeros(3), np.ones(3)).arrays()
    assert set(good) == set(SCALING_ARRAYS)
    for wrong in DAMAGED[name]:
        with pytest.raises(InputError, match="do not match these features; train again"):
            FeatureScaling.of({**good, name: wrong}, 3)


@pytest.mark.parametrize("task", ["classify", "link"])
def test_a_damaged_run_is_refused_in_one_line(task: str, tmp_path: Path) -> None:
    graph = few_features(40)
    {"classify": strict, "link": linked}[task](graph, out=tmp_path / "run")
    file = tmp_path / "run" / "model.npz"
    guest = new_device("guest", 1, 2, 3)
    uses: dict[str, Any] = {
        "classify": lambda run: predict_new_devices(run, [guest], graph=graph),
        "link": lambda run: run.predict_links(ids=[(0, 5)]),
    }
    arrays = read_arrays(file)
    wrong = np.array("neither"), np.array(["a", "b", "c"])
    for name, damage in zip(("feature_scaling", "feature_size"), wrong, strict=True):
        write_arrays(file, {**arrays, name: damage}, private=True)
        loaded = lumos.load_run(tmp_path / "run", graph=graph)
        with pytest.raises(InputError, match="train again"):
            uses[task](loaded)
        with pytest.raises(InputError, match="train again"):
            loaded.report(tmp_path / "page.html")


def test_links_of_a_given_split_are_the_same_when_asked_later(tmp_path: Path) -> None:
    """The finding: devices broke ties by other randomness than in the run, and so had other
    vectors."""
    graph = lumos.load("demo:200")
    edges = np.random.default_rng(0).permutation(np.asarray(graph.ids)[graph.edge_list()])
    run = linked(graph, split={"val": edges[:30], "test": edges[30:90]}, out=tmp_path / "run")
    later = lumos.load_run(tmp_path / "run", graph=graph)
    at_home = later.config.profile.link_result(trained_links(later))  # type: ignore[attr-defined]
    assert at_home.embeddings.tobytes() == run.embeddings.tobytes()


@pytest.mark.parametrize("task", ["classify", "link"])
def test_a_folder_has_roles_and_scales_but_no_feature_label_or_degree(
    task: str, tmp_path: Path
) -> None:
    graph = few_features(40)
    rows = np.arange(40)
    split: Any = {"train": rows[:20], "val": rows[20:30], "test": rows[30:]}
    if task == "link":
        edges = graph.edge_list()
        split = {"val": edges[:5], "test": edges[5:20]}
    run = {"classify": strict, "link": linked}[task](graph, out=tmp_path / "run", split=split)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    for folder in (path for path in (tmp_path / "run").rglob("*") if path.is_dir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder.name
    kept = read_arrays(tmp_path / "run" / "split.npz")
    assert set(kept) == ({"validation", "test"} if task == "link" else {"roles"})
    values = {repr(float(value)) for value in np.asarray(graph.features).ravel()}
    texts = [path.read_text() for path in files if path.suffix in (".json", ".jsonl")]
    assert not any(value in text for value in values for text in texts)
    exported = tmp_path / "weights.npz"
    run.export(exported, simulated=True)
    weights = read_arrays(exported)
    assert set(SCALING_ARRAYS) <= set(weights)
    assert all(40 not in array.shape for array in weights.values())
    about = str(weights["about"])
    assert not any(warning in about for warning in run.model.warnings)
    assert "test_accuracy" not in about


# Public facts.


def test_one_value_flips_a_public_fact_and_the_run_says_so() -> None:
    """One bit about all devices, exactly: a device that must not tell it needs set scales."""
    graph = few_features(40)
    bounded = changed(graph, features=np.abs(np.tanh(np.asarray(graph.features))))
    rows = np.array(bounded.features)
    rows[3, 1] = 1.5
    flipped = changed(graph, features=rows)
    told = [strict(g).model.weights.keys() >= set(SCALING_ARRAYS) for g in (bounded, flipped)]
    assert told == [False, True]
    for run in (strict(flipped), linked(flipped)):
        assert "whether all of them lie between -1 and 1" in run.model.exposed
    # Where both are set by hand, nothing of it is looked at, and nothing is said.
    settings: dict[str, Any] = {"scaling": "size", "signs": "nonnegative"}
    one, other = (strict(g, **settings) for g in (bounded, flipped))
    assert one.guarantees == other.guarantees
    assert one.model.exposed == other.model.exposed
    assert "lie between -1 and 1" not in one.model.exposed
    assert "is negative" not in one.model.exposed
