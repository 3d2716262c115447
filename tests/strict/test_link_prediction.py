"""Questions to a finished run: within budgets, kept, and the same by real cryptography."""

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.strict.linking import at_home, linked, town

from lumos import InputError, UsageError, load_run
from lumos.runs.run import Run
from lumos.strict.link.answers import halves
from lumos.strict.link.levels import spec_for
from lumos.twoparty.score import ScoreProtocol

DEVICES = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder; tests copy what they change."""
    out = tmp_path_factory.mktemp("links") / "run"
    linked(town(DEVICES), protect="none", out=out)
    return out


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    """The same run, with budgets that nobody used."""
    import shutil

    return load_run(Path(shutil.copytree(folder, tmp_path / "run")), town(DEVICES))


def by_hand(run: Run, pairs: Any, answered: np.ndarray) -> np.ndarray:
    """[pairs] probabilities from the weights of the run, and what devices hold at home."""
    weights, devices = run.model.weights, at_home(run)
    vectors = devices.vectors.astype(int)
    one, two = np.array(pairs).T
    cosines = tuple((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)[place] for place in weights["levels/kept"])
    thresholds = np.array(spec_for(vectors.shape[1], cosines).thresholds)
    levels = ((vectors[one] * vectors[two]).sum(axis=1)[:, None] >= thresholds).sum(axis=1)
    logits = np.log((devices.degree[one] + 1) / len(vectors))
    logits = logits + np.where(answered, weights["levels/evidence"][levels], 0)
    chance: np.ndarray = 1 / (1 + np.exp(-logits))
    return chance


def test_predictions_against_the_files_of_the_run(run: Run) -> None:
    rng = np.random.default_rng(0)
    pairs = [pair for pair in rng.integers(0, DEVICES, (300, 2)).tolist() if pair[0] != pair[1]]
    found = run.ask_links(ids=pairs)
    assert found.answered.sum() > 200
    assert_allclose(found.probability, by_hand(run, pairs, found.answered))
    assert found.ledger is not None
    assert found.ledger.scores == len({frozenset(p) for p, a in
                                       zip(pairs, found.answered, strict=True) if a})  # fmt: skip
    assert {line.door for line in found.ledger.topics.values()} == {"compare", "control"}


def test_asking_again_costs_nothing(run: Run) -> None:
    pairs = [(1, 2), (3, 4), (2, 1)]
    first = run.ask_links(ids=pairs)
    again = run.ask_links(ids=[(2, 1), *pairs[1:], (1, 2)])
    assert first.answered.all()
    assert again.answered.all()
    assert_array_equal(again.probability[1:3], first.probability[1:])
    assert again.probability[3] == first.probability[0]
    assert again.ledger is not None
    assert again.ledger.scores == 0
    assert load_run(run.folder or "", run.graph).ask_links(ids=pairs).ledger.scores == 0  # type: ignore[union-attr]


def test_beyond_the_budget_pairs_are_scored_by_the_own_degree(run: Run) -> None:
    pairs = [(7, peer) for peer in range(DEVICES) if peer != 7]
    found = run.ask_links(ids=pairs)
    asking, _ = halves(16)
    assert found.answered.sum() == asking
    own = (at_home(run).degree[7] + 1) / DEVICES
    assert_allclose(found.probability[~found.answered], 1 / (1 + 1 / own))
    more = run.ask_links(ids=pairs)
    assert_array_equal(more.answered, found.answered)
    assert_array_equal(more.probability, found.probability)


def test_a_flood_leaves_the_flooded_device_its_questions(run: Run) -> None:
    run.ask_links(ids=[(peer, 7) for peer in range(DEVICES) if peer != 7])
    found = run.ask_links(ids=[(7, peer) for peer in range(DEVICES) if peer != 7])
    asking, answering = halves(16)
    assert found.answered.sum() == asking + answering  # and what others asked is known to both


RANDOMIZED: dict[str, Any] = {"protect": "none", "query_epsilon": 3.0}


@pytest.mark.parametrize("epsilon", [float("inf"), 3.0])
def test_real_cryptography_tells_the_same(epsilon: float) -> None:
    pairs = [(one, two) for one in range(12) for two in range(one + 1, 14, 3)]
    found = []
    for secure in (False, True):
        trained = linked(town(300, within=0.4), **{**RANDOMIZED, "query_epsilon": epsilon})
        found.append(trained.ask_links(ids=pairs, secure=secure, workers=1))
    ideal, real = found
    assert_array_equal(ideal.probability, real.probability)
    assert_array_equal(ideal.answered, real.answered)
    assert ideal.ledger is not None
    assert real.ledger is not None
    assert_array_equal(ideal.ledger.bytes_sent, real.ledger.bytes_sent)
    assert real.ledger.topics["score"].door == "compare"


def test_randomized_answers_are_drawn_once() -> None:
    """Asking again cannot average the noise away."""
    trained = linked(town(300, within=0.4), **RANDOMIZED)
    pairs = [(one, one + 1) for one in range(0, 300, 2)]
    found = trained.ask_links(ids=pairs)
    assert found.answered.all()
    first = found.probability
    exact = by_hand(trained, pairs, found.answered)
    assert 0.02 < (first != exact).mean() < 0.5
    # The other end has learnt a level of its own, and keeps to that.
    back = [(two, one) for one, two in pairs]
    theirs = trained.ask_links(ids=back)
    assert theirs.answered.all()
    assert theirs.ledger is not None
    assert theirs.ledger.scores == 0
    assert 0.02 < (theirs.probability != by_hand(trained, back, theirs.answered)).mean() < 0.5
    for _ in range(3):
        assert_array_equal(trained.predict_links(ids=pairs), first)


def test_answers_are_kept_where_the_run_is(run: Run, tmp_path: Path) -> None:
    assert run.folder is not None
    run.ask_links(ids=[(0, 1)])
    place = run.folder / "answers.npz"
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    place.write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"answers\.npz: is damaged"):
        run.ask_links(ids=[(0, 2)])


def test_a_run_without_a_folder_remembers_too() -> None:
    trained = linked(town(), protect="none")
    first = trained.ask_links(ids=[(0, peer) for peer in range(1, 30)])
    again = trained.ask_links(ids=[(0, peer) for peer in range(1, 30)])
    assert_array_equal(first.answered, again.answered)
    assert first.answered.sum() == halves(16)[0]


def test_a_run_that_is_saved_takes_its_answers_along(tmp_path: Path) -> None:
    trained = linked(town(), protect="none")
    pairs = [(0, peer) for peer in range(1, 30)]
    first = trained.ask_links(ids=pairs)
    saved = load_run(trained.save(tmp_path / "run"), trained.graph)
    for each in (saved, trained):
        again = each.ask_links(ids=pairs)
        assert_array_equal(again.answered, first.answered)
        assert_array_equal(again.probability, first.probability)
    assert saved.ask_links(ids=[(0, 40), (40, 50)]).answered.tolist() == [False, True]
    assert trained.ask_links(ids=[(40, peer) for peer in range(50, 70)]).answered.sum() == 7


def test_progress_counts_pairs(run: Run) -> None:
    seen: list[tuple[int, int]] = []
    run.ask_links(ids=[(0, 1), (2, 3), (1, 0)], progress=lambda *now: seen.append(now))
    assert seen == [(2, 2)]


def test_no_pairs(run: Run) -> None:
    found = run.ask_links(ids=[])
    assert len(found.probability) == 0
    assert found.ledger is None


def test_pairs_that_cannot_be(run: Run) -> None:
    with pytest.raises(UsageError, match="twice the same device"):
        run.ask_links(ids=[(1, 2), (3, 3)])
    with pytest.raises(InputError, match="'nobody' is not the id of any device"):
        run.ask_links(ids=[(1, "nobody")])
    with pytest.raises(UsageError, match="use predict_links"):
        run.predict_proba()


def test_suggestions_are_the_likeliest_that_answered(run: Run) -> None:
    candidates = list(range(1, 40))
    found = run.suggest(0, [*candidates, 0, 5, 5], most=12)
    assert len(found) == 12
    again = run.ask_links(ids=[(0, name) for name in candidates])
    answered = [
        (str(name), float(chance))
        for name, chance, yes in zip(candidates, again.probability, again.answered, strict=True)
        if yes
    ]
    asking, _ = halves(16)
    assert len(answered) == asking
    assert [chance for _, chance in found[:asking]] == sorted(
        (c for _, c in answered), reverse=True
    )
    assert set(found[:asking]) == set(answered)
    assert "0" not in dict(found)
    with pytest.raises(UsageError, match="`most` must be 1 or more"):
        run.suggest(0, candidates, most=0)


def test_suggestions_find_the_own_group(run: Run) -> None:
    """Within the budget: most of those suggested first are of the asker's group of four."""
    hits = []
    for device in range(0, 60, 6):
        same = [peer for peer in range(60, DEVICES) if peer % 4 == device % 4][:3]
        others = [peer for peer in range(60, DEVICES) if peer % 4 != device % 4][:4]
        best = [int(name) for name, _ in run.suggest(device, same + others, most=3)]
        hits += [peer % 4 == device % 4 for peer in best]
    assert np.mean(hits) > 0.6


def test_whoever_asks_reads_tables_and_fills_none(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end that fills tables learns any function of the other's vector: never the asker."""
    opened: dict[tuple[int, int], bool] = {}
    original = ScoreProtocol.open

    def noting(self: Any, me: int, peer: int, group: Any, *, sender: bool) -> Any:
        opened[me, peer] = sender
        return original(self, me, peer, group, sender=sender)

    monkeypatch.setattr(ScoreProtocol, "open", noting)
    asked = [(0, 9), (9, 4), (5, 3), (2, 9)]
    found = run.ask_links(ids=asked, secure=True, workers=1)
    assert found.answered.all()
    roles = dict.fromkeys(asked, False)
    assert opened == roles | {(peer, asker): True for asker, peer in asked}


def test_a_run_that_fell_back_asks_nobody() -> None:
    trained = linked("demo:60")
    assert trained.model.choice == "degree"
    found = trained.ask_links(ids=[(0, 1), (1, 0)], secure=True)
    assert found.ledger is None
    assert not found.answered.any()
    own = (at_home(trained).degree[:2] + 1) / 60
    assert_allclose(found.probability, own / (1 + own))
