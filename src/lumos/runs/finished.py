"""A finished run, from what its arms and the observer have."""

import time
from functools import partial

import msgspec

from lumos.graph.arrays import IdTexts
from lumos.memory import peak_rss_mb
from lumos.runs.loop import TrainedArm
from lumos.runs.prepared import Prepared
from lumos.runs.run import Cost, Privacy, Run, TrainedModel, Training
from lumos.runs.schema import About, PerEpoch, RankCost, Split
from lumos.runs.tree_summary import TreeSummary
from lumos.training.cautions import below_own, no_better_than_control, unconverged
from lumos.training.config import Config
from lumos.training.metrics import Scores, device_scores, dot_products, pair_scores
from lumos.training.outcome import CONTROL, MAIN, OWN, Judged
from lumos.training.split import DataSplit
from lumos.typing import Arrays, Ints


def finished_run(
    prepared: Prepared,
    about: About,
    config: Config,
    trees: TreeSummary,
    fitted: dict[str, TrainedArm],
    ids: IdTexts,
    rows: Arrays,
    costs: list[RankCost],
    start: float,
) -> Run:
    """The run at rank 0.

    Args:
        fitted: all arms.
        ids: of all devices.
        rows: [devices] labels and roles, by which the observer scores.
        costs: what each process took.
        start: when the run began.
    """
    main = fitted[MAIN]
    outcome = main.outcome
    judged = {arm: of_arm.outcome.judged[MAIN] for arm, of_arm in fitted.items()}
    for arm, part in outcome.judged.items():
        if arm != OWN or config.train.floor:
            judged[arm] = part
    scores = {arm: _scores(prepared, rows, part) for arm, part in judged.items()}
    counts, data = _split(prepared, rows)
    return Run(
        about=about,
        config=config,
        scores=scores,
        histories={arm: of_arm.history for arm, of_arm in fitted.items()},
        training=Training(
            split=counts,
            best_epoch=outcome.best_epoch,
            choice=outcome.choice,
            cautions=[*outcome.cautions, *_cautions(config, main, scores, counts.test)],
            estimates=outcome.estimates,
        ),
        cost=Cost(
            seconds=round(time.perf_counter() - start, 3),
            seconds_per_epoch=round(main.seconds / len(main.history), 4),
            peak_rss_mb=peak_rss_mb(),
            ranks=costs,
            per_epoch=msgspec.convert(main.per_epoch, PerEpoch),
        ),
        privacy=Privacy(exposed=outcome.exposed, promises=outcome.promises),
        model=TrainedModel(
            weights=main.weights,
            embeddings=outcome.embeddings,
            logits=outcome.logits,
            kept=outcome.kept,
        ),
        trees=trees,
        ledger=main.ledger,
        ids=ids,
        graph=prepared.graph,
        _split=data,
        _held_out=_given_pairs(prepared),
    )


def _given_pairs(prepared: Prepared) -> tuple[Ints, Ints] | None:
    """Held-out edges of a split that was given, where the run has no graph to find them in."""
    pairs = prepared.held_out
    if prepared.edges is not None or pairs is None or prepared.split.shares is not None:
        return None
    return pairs.validation, pairs.test


def _split(prepared: Prepared, rows: Arrays) -> tuple[Split, DataSplit | None]:
    """How many train, validate and test, and who; None for edges that no process has together."""
    origin, data = prepared.split.origin, None
    if prepared.edges is not None:
        data = prepared.edges.edges(origin)
    elif prepared.held_out is None:
        data = DataSplit.of_roles(rows["roles"], origin)
    if prepared.counts is not None:
        return prepared.counts, data
    if data is None:
        raise TypeError("a split has neither counts nor devices")
    return Split(len(data.train), len(data.validation), len(data.test)), data


def _cautions(config: Config, main: TrainedArm, scores: dict[str, Scores], cases: int) -> list[str]:
    """What the observer sees: a loss that still falls, own features or a control as good."""
    metric = "auc" if config.train.task == "link" else "accuracy"
    last_stage = max(config.profile.texts(config).stages.values(), default=1)
    finished = main.outcome.best_epoch == len(main.history)
    losses = [event.loss for event in main.history[last_stage - 1 :]] if finished else []
    of = {arm: float(figures[f"test_{metric}"]) for arm, figures in scores.items()}
    return [
        *unconverged(losses, config.train.epochs),
        *below_own(of[MAIN], of.get(OWN), cases, metric),
        *no_better_than_control(of[MAIN], of.get(CONTROL), cases, metric),
    ]


def _scores(prepared: Prepared, rows: Arrays, part: Judged) -> Scores:
    """The observer's scores: of pairs where edges are split, of logits otherwise."""
    pairs = prepared.held_out
    if pairs is not None:
        return pair_scores(part if callable(part) else partial(dot_products, part), pairs)
    if callable(part):
        raise TypeError("pairs are scored where edges are split")
    return device_scores(part, rows["labels"], rows["roles"], prepared.facts.classes)
