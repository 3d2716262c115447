"""Attacks on whole runs of strict links, and on questions to them, with broken twins.

Every attack is shown to succeed on a twin that breaks one rule, or it would prove nothing.
`lumos audit` and `benchmarks/strict_link_leak.py` measure what is left on real graphs.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.running import listening
from tests.strict.linking import at_home

from lumos.audit.attacks import link_training
from lumos.errors import LumosError
from lumos.exchange.tape import recording
from lumos.graph import Graph
from lumos.runs.load import load_run
from lumos.runs.run import Run
from lumos.runs.train import train
from lumos.secagg.noise import Noise
from lumos.strict.link import answers as link_answers
from lumos.strict.link import encoder as token_rows
from lumos.strict.link import prediction as link_prediction
from lumos.strict.link import trainer as link_trainer
from lumos.strict.link.answers import AnswerBudget, AnswerRecord, AnswerStore
from lumos.strict.link.encoder import unit
from lumos.strict.link.levels import NeighbourhoodSketch, Reading, integers, spec_for
from lumos.strict.link.prediction import LinkResult, answer
from lumos.strict.settings import StrictSettings
from lumos.training.config import Config
from lumos.training.metrics import auc
from lumos.training.trainer import AskedPairs
from lumos.twoparty import score as senders
from lumos.twoparty.score import UNANSWERED, LevelSpec, ScoreReceiver, ScoreSender, levels_of

MARGIN = 4.0
"""Standard errors."""
WIDTH = 16


def result_of(devices: int, vectors: Any = None, **settings: Any) -> LinkResult:
    """Devices that have vectors, and have answered nothing yet."""
    rng = np.random.default_rng(0)
    own = rng.integers(-2, 3, (devices, WIDTH)).astype(np.int8) if vectors is None else vectors
    even = dict.fromkeys(("tokens", "sketch", "both"), 0.5)
    reading = Reading(way="both", kept=(1, 3, 5), evidence=np.zeros(4), separation=even, error=even)
    return LinkResult(
        reading=reading,
        vectors=own,
        embeddings=own.astype(np.float32),
        degree=np.ones(devices, np.int64),
        sent=np.zeros((devices, 2), np.uint8),
        budget=AnswerBudget.unused(devices),
        strict=StrictSettings(**settings),
        seed=0,
    )


def true_levels(result: LinkResult, pairs: np.ndarray) -> np.ndarray:
    first, second = (result.vectors[pairs[:, end]].astype(np.int64) for end in (0, 1))
    spec = spec_for(result.vectors.shape[1], result.reading.cosines)
    levels: np.ndarray = np.searchsorted(spec.thresholds, (first * second).sum(axis=1), "right")
    return levels


def some_pairs(devices: int, many: int, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(0, devices, (many, 2))
    return drawn[drawn[:, 0] != drawn[:, 1]]


# Sums: these words or others, within the account.


LINKS = Config.of(profile="strict", task="link")


def shares_of_account(*, by_noise: bool = False) -> dict[str, float]:
    """By stage, μ in those of the account; `by_noise`: by the noise that was found."""
    return {
        stage: one.largest * (one.noise.value if by_noise else 1) / max(one.account, 1e-9)
        for stage, one in link_training.guesses(2, LINKS).items()
    }


def test_other_words_stay_within_the_account_of_every_stage() -> None:
    found = shares_of_account()
    assert max(found.values()) <= 1
    assert found["random_marks"] == 0  # no words in them
    assert min(found["counts"], found["associations"]) > 0.999  # and the attack has teeth
    assert found["levels"] > 0.5
    assert found["whitening"] > 0.2  # noise decides which embeddings these words have
    assert found["all sums"] > 0.95
    by_noise = shares_of_account(by_noise=True)  # 4,608 numbers, one part in 96
    assert abs(by_noise["associations"] / found["associations"] - 1) < MARGIN / np.sqrt(2 * 4608)


def test_twin_with_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    total = Noise.total.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Noise, "total", property(lambda self: total(self) / 2))
    assert shares_of_account(by_noise=True)["counts"] > 1.5


def test_twin_with_longer_counts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_rows, "COUNTED", 8)
    monkeypatch.setattr(
        token_rows.TokenRows, "shares", lambda self: self._presence() * (1 / np.sqrt(8))
    )
    assert shares_of_account()["counts"] > 1.5


def test_twin_with_longer_rows_in_associations_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    weighted = token_rows.TokenRows.weighted
    monkeypatch.setattr(
        token_rows.TokenRows, "weighted", lambda self, weights: 3 * weighted(self, weights)
    )
    assert shares_of_account()["associations"] > 1.5


def test_twin_with_longer_sketches_in_associations_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(NeighbourhoodSketch, "vectors", NeighbourhoodSketch._memory)
    assert shares_of_account()["associations"] > 1.5


# Messages to neighbours.


def neighbour_messages(words: Any, edges: Any, held_back: Any) -> Any:
    """Everything that passes between neighbours and through `control`, for the same randomness."""
    with recording(), listening() as wire:
        link_training.train(link_training.federation(words, edges, held_back, 0, LINKS))
    names = ("strict/colour", "strict/opinion", "strict/proposal", "strict/reply")
    return [wire.of(name) for name in names]


def test_messages_to_neighbours_depend_on_no_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words, _, edges, held_back = link_training.planted(0)
    others = np.roll(words, 1, axis=0)
    mine = neighbour_messages(words, edges, held_back)
    assert all(mine)
    assert neighbour_messages(others, edges, held_back) == mine
    # A twin whose neighbourhood sketch start from words.
    begin = link_trainer.StrictLinker._begin

    def coloured(self: Any) -> None:
        begin(self)
        self.sketch._own = self.tokens.held % 16
        self.sketch._sent = self.sketch._own.astype(np.uint8)

    monkeypatch.setattr(link_trainer.StrictLinker, "_begin", coloured)
    assert neighbour_messages(others, edges, held_back) != neighbour_messages(
        words, edges, held_back
    )


def test_colours_and_propagated_labels_are_the_same_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words, _, edges, held_back = link_training.planted(1)
    random_marks, propagated_labels, *_ = neighbour_messages(words, edges, held_back)
    assert (len(random_marks), len(propagated_labels)) == (1, 3)
    for messages in [*random_marks, *propagated_labels]:
        bodies: dict[int, set[bytes]] = {}
        for message in messages:
            bodies.setdefault(message.sender, set()).add(message.body)
        assert max(map(len, bodies.values())) == 1
    # A twin that tells every neighbour something else: the endpoint refuses to send it.
    module: Any = link_trainer
    send_over = module.send_over

    def differing(topic: Any, shard: Any, slots: Any, bodies: Any, *others: Any) -> Any:
        odd = np.arange(len(bodies))[:, None] % 2
        return send_over(topic, shard, slots, (bodies + odd).astype(np.uint8), *others)

    monkeypatch.setattr(link_trainer, "send_over", differing)
    with pytest.raises(LumosError, match="strict/colour"):
        neighbour_messages(words, edges, held_back)


def test_every_proposal_and_reply_is_counted() -> None:
    words, _, edges, held_back = link_training.planted(2)
    with recording(), listening() as wire:
        made = link_training.federation(words, edges, held_back, 0, LINKS)
        link_training.train(made)
    proposals, replies = wire.all_of("strict/proposal"), wire.all_of("strict/reply")
    assert len(proposals) == len(replies) > 50
    ledger = made.ledger()
    assert ledger.topics["strict/proposal"].messages == len(proposals)
    assert ledger.control_bits >= len(proposals) + len(replies)
    known = {tuple(edge) for edge in np.concatenate([edges, held_back]).tolist()}
    assert {tuple(sorted((m.sender, m.receiver))) for m in proposals} <= known


# Degrees in the direction of a vector.


def degree_auc() -> float:
    """Of the mean level that 16 askers get, by neighbourhood sketch, where edges have no other
    pattern."""
    rng = np.random.default_rng(0)
    devices, asking = 1500, 16
    wish = np.where(np.arange(devices) < devices // 2, 2, 20)  # ends of edges
    ends = rng.permutation(np.repeat(np.arange(devices), wish))
    pairs = ends[: len(ends) // 2 * 2].reshape(-1, 2)
    words = np.ones((devices, 30), np.float32)
    graph = Graph.from_edges(pairs[pairs[:, 0] != pairs[:, 1]], devices=devices, features=words)
    run = train(graph, task="link", floor=False, protect="none")
    marks = run.model.weights["usual"].shape[1]
    sketch = run.embeddings[:, -marks:].astype(np.float64)
    vectors = integers(unit(sketch)).astype(np.int64)
    spec = spec_for(marks, (0.1, 0.3, 0.5))
    levels = levels_of(vectors[asking:] @ vectors[:asking].T, spec).mean(axis=1)
    big = wish[asking:] > 2
    return auc(levels[big], levels[~big])


def test_twin_with_degrees_in_its_direction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abs(degree_auc() - 0.5) < 0.08
    # The twin does not take off what is usual: whoever heard much has something of every random
    # mark.
    monkeypatch.setattr(
        NeighbourhoodSketch,
        "vectors",
        lambda self: unit(self._received + np.eye(self._size)[self._own]),
    )
    assert degree_auc() > 0.8


# Budgets.


def given(record: AnswerRecord) -> np.ndarray:
    """[devices] how many others each has learnt a level with."""
    return np.bincount(record.pairs.ravel(), minlength=len(record.budget.asked))


def test_no_way_of_asking_exceeds_the_budget(tmp_path: Path) -> None:
    """Both orders, again and again, by several at once, after reading the file again."""
    result = result_of(60, score_queries=8)
    path = tmp_path / "answers.npz"
    pairs = some_pairs(60, 3000)

    def ask(seed: int) -> None:
        mine = np.random.default_rng(seed).permutation(pairs)[:400]
        mine = np.concatenate([mine, mine[:, ::-1], mine])
        store = AnswerStore(path, result.budget)
        store.update(lambda record: link_prediction.ask_new(result, AskedPairs(pairs=mine), record))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(ask, range(9)))
    found = AnswerStore(path, result.budget).update(lambda record: record)
    assert given(found).max() <= 6  # 8, less 2 of calibration
    assert np.array_equal(given(found), found.budget.asked + found.budget.answered)
    assert found.budget.asked.max() == found.budget.answered.max() == 3
    assert len(np.unique(found.pairs, axis=0)) == len(found.pairs)


def test_twin_that_forgets_is_caught(tmp_path: Path) -> None:
    result = result_of(60, score_queries=8)
    learnt = set()
    for seed in range(4):
        record = AnswerRecord.of({}, result.budget)  # a new one each time
        link_prediction.ask_new(result, AskedPairs(pairs=some_pairs(60, 500, seed)), record)
        learnt |= {tuple(pair) for pair in record.pairs.tolist()}
    assert np.bincount(np.array(list(learnt)).ravel()).max() > 6


def test_calibrations_of_many_runs_stay_within_the_budget() -> None:
    """Found by this attack: 19 answers of 16, where a half was used up before the next run."""
    strict = StrictSettings()
    for asked in range(8):
        for answered in range(8):
            budget = AnswerBudget.unused(1)
            budget.asked[:], budget.answered[:] = asked, answered
            while budget.given()[0] + 2 <= strict.score_queries:
                budget.calibrated += 2
                asking, answering = budget.left(strict)
                assert budget.given()[0] + asking[0] + answering[0] <= strict.score_queries
    fresh = AnswerBudget.unused(1)
    fresh.calibrated[:] = 2
    assert [left.tolist() for left in fresh.left(strict)] == [[7], [7]]


@pytest.fixture(scope="module")
def run() -> Run:
    """A run whose devices ask: words are told apart without noise."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(10), 20)
    pairs = [
        (one, int(other))
        for one in range(200)
        for other in rng.choice(np.flatnonzero(group == group[one]), 6)
        if one != other
    ]
    words = rng.random((200, 60)) < np.where(np.arange(60) // 6 == group[:, None], 0.7, 0.02)
    graph = Graph.from_edges(np.array(pairs), devices=200, features=words.astype(np.float32))
    made = train(graph, task="link", floor=False, protect="none", score_queries=6)
    assert made.model.choice != "degree"
    return made


def test_a_saved_run_has_the_budget_of_the_one_in_memory(run: Run, tmp_path: Path) -> None:
    """Found by this attack: a run that was saved began anew."""
    pairs = [(0, other) for other in range(20, 40)]
    first = run.ask_links(ids=pairs).answered.sum()
    assert first == 2
    run.save(tmp_path / "run")
    loaded = load_run(tmp_path / "run", run.graph)
    more = [(0, other) for other in range(60, 80)]
    assert loaded.ask_links(ids=more).answered.sum() == 0
    assert run.ask_links(ids=more).answered.sum() == 0
    assert run.ask_links(ids=[(1, 100)]).answered.all()
    assert (
        load_run(tmp_path / "run", run.graph).ask_links(ids=[(1, 101), (1, 102)]).answered.sum()
        == 1
    )
    assert loaded.ask_links(ids=pairs).answered.sum() == first  # what was answered is not forgotten


# Randomized response.


def drawn_shifts(patch: pytest.MonkeyPatch) -> list[tuple[Any, np.ndarray, np.ndarray]]:
    """(step, devices, shifts) of every draw from now on."""
    drawn: list[tuple[Any, np.ndarray, np.ndarray]] = []
    original = link_answers.shifts_for

    def heard(shard: Any, pairs: Any, levels: int, epsilon: float, step: int) -> Any:
        shifts = original(shard, pairs, levels, epsilon, step)
        drawn.append((step, shard.ids_of(pairs.rows), present_or_empty(shifts)))
        return shifts

    patch.setattr(link_answers, "shifts_for", heard)
    return drawn


def present_or_empty(shifts: np.ndarray | None) -> np.ndarray:
    return np.empty(0, np.int64) if shifts is None else shifts


def agreement(drawn: list[Any], one: int, two: int) -> float:
    """How often first shifts in two draws are equal, above chance, in standard errors."""
    firsts = []
    for _, devices, shifts in (drawn[one], drawn[two]):
        ids, places = np.unique(devices, return_index=True)
        firsts.append(dict(zip(ids.tolist(), shifts[places].tolist(), strict=True)))
    both = sorted(set(firsts[0]) & set(firsts[1]))
    assert len(both) > 50
    same = np.mean([firsts[0][device] == firsts[1][device] for device in both])
    keep = np.exp(0.1) / (np.exp(0.1) + 3)
    chance = keep**2 + (1 - keep) ** 2 / 3
    return float((same - chance) / np.sqrt(chance * (1 - chance) / len(both)))


def test_no_two_batches_waves_or_runs_share_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by this attack: the second wave repeated the randomness of some batches of the first,
    and runs with different ε those of one another."""
    monkeypatch.setattr(link_prediction, "AT_ONCE", 128)
    pairs = some_pairs(400, 1500)
    drawn = drawn_shifts(monkeypatch)
    base = result_of(400, score_queries=8, query_epsilon=0.1)
    answer(base, AskedPairs(pairs=pairs), base.budget.copy(), both_may_ask=True)
    steps = [step for step, *_ in drawn]
    assert len(set(steps)) == len(steps) > 12
    drawn.clear()
    monkeypatch.setattr(link_prediction, "AT_ONCE", 4096)
    settings: list[Any] = [{}, {"query_epsilon": 0.1001}, {"query_bits": 3}, {"score_queries": 0}]
    for change in settings:
        other = replace(base, strict=replace(base.strict, **{"score_queries": 9, **change}))
        answer(other, AskedPairs(pairs=pairs), other.budget.copy())
    turned = result_of(400, base.vectors[::-1].copy(), score_queries=9, query_epsilon=0.1)
    answer(turned, AskedPairs(pairs=pairs), turned.budget.copy())
    for two in range(1, len(drawn)):
        assert abs(agreement(drawn, 0, two)) < MARGIN
    # The twin: randomness that are named by questions and budgets alone.
    drawn.clear()
    monkeypatch.setattr(link_prediction, "_randomness_name", lambda *_: "the same")
    for change in settings[:2]:
        other = replace(base, strict=replace(base.strict, **{"score_queries": 9, **change}))
        answer(other, AskedPairs(pairs=pairs), other.budget.copy())
    assert agreement(drawn, 0, 1) > MARGIN


def test_fresh_randomness_are_no_function_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """This attack found that the seed gave away the shifts of a run with system randomness."""
    drawn = drawn_shifts(monkeypatch)
    result, pairs = result_of(400, score_queries=0, query_epsilon=0.1), some_pairs(400, 1500)
    for fresh in (False, False, True, True):
        answer(result, AskedPairs(pairs=pairs), result.budget.copy(), fresh=fresh)
    assert agreement(drawn, 0, 1) > MARGIN
    assert abs(agreement(drawn, 0, 2)) < MARGIN
    assert abs(agreement(drawn, 2, 3)) < MARGIN


@pytest.mark.parametrize("turned", [False, True])
def test_memory_never_undoes_a_shift(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by this attack: the asked end, asking in turn, got the asker's level, which had its
    own shift, and so the exact one. The best guess from all that an end has is e^ε/(e^ε + 3)."""
    drawn = drawn_shifts(monkeypatch)
    pairs = np.arange(2000).reshape(-1, 2)
    if turned:
        pairs = pairs[:, ::-1]
    result = result_of(2000, score_queries=0, query_epsilon=1.0)
    record = AnswerRecord.of({}, result.budget)

    def told(asked: np.ndarray) -> np.ndarray:
        found = link_prediction.ask_new(result, AskedPairs(pairs=asked), record)
        return found.levels[:, 0]

    asker, other = told(pairs), told(pairs[:, ::-1])
    own = np.empty(2000, np.int64)
    own[drawn[0][1]] = drawn[0][2]
    truth = true_levels(result, pairs)
    bound = np.exp(1) / (np.exp(1) + 3)
    error = MARGIN * np.sqrt(bound * (1 - bound) / len(pairs))
    for end, seen in ((0, asker), (1, other)):
        assert abs((seen == truth).mean() - bound) < error  # as often as guaranteed, and no more
        assert ((seen - own[pairs[:, end]]) % 4 == truth).mean() < bound + error
    assert np.array_equal((truth + own[pairs[:, 1]]) % 4, asker)
    assert np.array_equal((truth + own[pairs[:, 0]]) % 4, other)
    # The twin gives both ends what the asker learnt.
    assert ((asker - own[pairs[:, 1]]) % 4 == truth).all()


# One answer, and a sender that keeps to no rule.


def test_an_answer_has_no_more_levels_than_its_bits(run: Run) -> None:
    result = replace(at_home(run), strict=StrictSettings(score_queries=0))
    levels = answer(result, AskedPairs(pairs=some_pairs(200, 3000)), result.budget.copy()).levels
    assert levels.max() < 4
    assert not (levels == UNANSWERED).any()
    every = replace(result.reading, kept=tuple(range(7)))  # a twin with all of calibration's
    twin = replace(result, reading=every)
    levels = answer(twin, AskedPairs(pairs=some_pairs(200, 3000)), twin.budget.copy()).levels
    assert levels.max() > 3


def converse(sender: ScoreSender, receiver: ScoreReceiver) -> None:
    message: bytes | None = sender.step()
    turn: Any = receiver
    while message is not None:
        message = turn.step(message)
        turn = sender if turn is receiver else receiver


def test_a_sender_that_fills_its_tables_as_it_likes_reads_any_coordinate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No defect but the limit of semi-honest security, as docs/strict-links.md says it: two bits of
    any form of the other's vector, exactly, for one answer."""
    spec = LevelSpec(width=WIDTH, bits=3, ring_bits=8, thresholds=(5, 20, 40))
    vector = np.random.default_rng(5).integers(-3, 4, WIDTH)
    quarter = [-2, 0, 2]  # levels of one coordinate, four of them
    monkeypatch.setattr(
        senders, "level_table", lambda spec, share, shift: _table(spec, share, quarter)
    )
    for place in range(3):
        form = np.zeros(WIDTH, np.int64)
        form[place] = 1
        sender, receiver = ScoreSender(me=1, peer=2), ScoreReceiver(me=2, peer=1)
        sender.begin([(spec, form)])
        receiver.begin([(spec, vector)])
        converse(sender, receiver)
        assert sender.results[0] == np.searchsorted(quarter, vector[place], "right")


def _table(spec: LevelSpec, share: int, cuts: list[int]) -> np.ndarray:
    size = 1 << spec.ring_bits
    element = np.arange(size)
    signed = np.where(element < size // 2, element, element - size)
    levels = np.roll(np.searchsorted(cuts, signed, "right"), -share)
    bits: np.ndarray = (levels[None] >> np.arange(2)[:, None] & 1).astype(np.uint8)
    return bits
