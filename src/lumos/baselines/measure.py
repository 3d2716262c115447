"""The whole job: one system that Lumos is compared with, on the same splits and scores."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lumos.baselines.network import Network
from lumos.baselines.systems import BASELINES, BaselineSettings, Received, ServerProblem, asked
from lumos.device.randomness import PublicRandomness
from lumos.display import ProgressOption, displayed
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.graph.io import take_reading
from lumos.graph.sources import as_graph
from lumos.machine import peak_rss_mb
from lumos.training.given_split import GivenSplit, edge_split, reading_of, vertex_split
from lumos.training.metrics import Scores, device_scores, dot_products, pair_scores
from lumos.training.problem import features_of
from lumos.training.split import Role
from lumos.typing import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A finished baseline. Scores are the observer's."""

    graph: Graph
    settings: BaselineSettings
    seed: int
    metrics: Scores
    """By name, the same as those of `lumos.train`: see `lumos.training.metrics.Scores`."""
    outputs: Floats = field(repr=False)
    """[devices, classes] logits, or [devices, hidden] embeddings, of the chosen epoch."""
    history: list[dict[str, float]] = field(repr=False)
    """One record per epoch: loss, and the score that the server chooses by."""
    best_epoch: int
    split: str
    """Origin of the split, in one sentence."""
    notes: list[str]
    """Knowledge of the server, cost, samples: one plain sentence each."""
    seconds: float
    """From the graph to the result."""
    seconds_per_epoch: float

    def __repr__(self) -> str:
        name = self.graph.name.strip() or "a graph in memory"
        numbers = {key: score for key, score in self.metrics.items() if isinstance(score, float)}
        scores = ", ".join(f"{key} {score:.4f}" for key, score in numbers.items())
        return (
            f"Measured({self.settings.system} on {name}, {self.settings.task}, seed {self.seed}: "
            f"{scores})"
        )

    def summary(self) -> dict[str, Any]:
        """Return everything that `lumos baseline --json` prints."""
        settings, plain = self.settings, self.settings.plain()
        return {
            "graph": self.graph.name,
            "devices": self.graph.devices,
            "edges": self.graph.edges,
            "system": settings.system,
            "task": settings.task,
            "backbone": plain.get("backbone"),
            "epsilon": plain.get("feature_epsilon"),
            "label_epsilon": plain.get("label_epsilon"),
            **self.metrics,
            "epochs": len(self.history),
            "best_epoch": self.best_epoch,
            "split_origin": self.split,
            "final_loss": self.history[-1]["loss"],
            "seconds": round(self.seconds, 3),
            "seconds_per_epoch": round(self.seconds_per_epoch, 4),
            "peak_rss_mb": peak_rss_mb(),
            "seed": self.seed,
            "settings": plain,
            "protects": BASELINES[settings.system].protects(settings),
            "notes": [*self.graph.notes, *self.notes],
        }


def baseline(
    graph: Any,
    settings: BaselineSettings | None = None,
    *,
    seed: int = 0,
    split: GivenSplit = None,
    data_dir: Path | None = None,
    progress: ProgressOption = None,
    **single_settings: Any,
) -> Measured:
    """Train and measure one of the systems that Lumos is compared with.

    Args:
        graph: a `Graph`, a PyG `Data`, a NetworkX graph, or a name or path as `load` takes it.
        settings: all settings; or give single ones by name, as `system="lpgnn", hidden=32`.
        seed: run seed: of the split, as in `lumos.train`, of weights and of all noise.
        split: as in `lumos.train`.
        data_dir: folder of named graphs.
        progress: True shows it; or a callback `(done, total, note)`, called after every epoch.
        single_settings: settings by name, and how the graph is read, as `lumos.train` takes it.
    """
    reading = take_reading(single_settings)
    if settings is not None and single_settings:
        raise UsageError("give a BaselineSettings or single settings, not both")
    settings = settings or asked(**single_settings)
    start = time.perf_counter()
    whole = as_graph(graph, data_dir, implied=reading_of(split), **reading)
    features_of(whole)  # or say that there are none
    problem, origin = _problem(whole, settings, split, PublicRandomness(seed))
    system = BASELINES[settings.system]
    attempts = system.attempts(settings)
    fitted: list[Fitted] = []
    disclosed: list[list[str]] = []
    spent = 0.0
    with displayed(progress, settings.system) as shown:
        for number, attempt in enumerate(attempts):

            def on_epoch(epoch: int, note: str, before: int = number) -> None:
                if shown is not None:
                    done = before * settings.epochs + epoch
                    shown(done, len(attempts) * settings.epochs, note)

            received = system.receive(problem, attempt)
            disclosed.append(received.disclosed)
            clock = time.perf_counter()
            fitted.append(fit(received, attempt, whole, problem.public, on_epoch))
            spent += time.perf_counter() - clock
    best = int(np.argmax([each.score for each in fitted]))
    chosen = fitted[best]
    return Measured(
        graph=whole,
        settings=settings,
        seed=seed,
        metrics=_scores(whole, problem, chosen.outputs),
        outputs=chosen.outputs,
        history=chosen.history,
        best_epoch=chosen.best_epoch,
        split=origin,
        notes=[*disclosed[best], *system.chosen(attempts, best)],
        seconds=time.perf_counter() - start,
        seconds_per_epoch=spent / sum(len(each.history) for each in fitted),
    )


def _problem(
    graph: Graph, settings: BaselineSettings, given: GivenSplit, public: PublicRandomness
) -> tuple[ServerProblem, str]:
    """Return the problem, and the origin of its split."""
    if settings.task == "link":
        held = edge_split(graph, given, public)
        nobody = np.full(graph.devices, Role.NOBODY, np.int64)
        split = held.split
        problem = ServerProblem(graph=split.training, roles=nobody, split=split, public=public)
        return problem, held.origin
    roles, origin, _ = vertex_split(graph, given, public)
    return ServerProblem(graph=graph, roles=roles, split=None, public=public), origin


class Fitted(NamedTuple):
    """The epoch with the best validation score."""

    network: Network
    outputs: Floats
    score: float
    best_epoch: int
    history: list[dict[str, float]]


def fit(
    received: Received,
    settings: BaselineSettings,
    graph: Graph,
    public: PublicRandomness,
    on_epoch: Callable[[int, str], None] = lambda epoch, note: None,
) -> Fitted:
    """Train by full-batch Adam; an epoch's score is of the weights it starts with."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(public.generator("baseline/weights").integers(2**62)))
        classes = graph.class_count if settings.task == "classify" else 0
        network = Network(settings, received.rows.shape[1], classes)
        adam = torch.optim.Adam(
            network.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        best, best_score, best_epoch = torch.empty(0), -np.inf, 0
        history: list[dict[str, float]] = []
        for epoch in range(1, settings.epochs + 1):
            first = network.first(received.rows, received.arcs)
            out = network.train().rest(first, received.arcs)
            seen = out.detach()
            if settings.dropout > 0:
                with torch.no_grad():
                    seen = network.eval().rest(first, received.arcs)
            score = received.goal.score(seen)
            if score > best_score or epoch == 1:
                best, best_score, best_epoch = seen, score, epoch
                weights = {name: table.clone() for name, table in network.state_dict().items()}
            loss = received.goal.loss(out, epoch)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            history.append({"epoch": epoch, "loss": float(loss.detach()), "score": score})
            loss_now = history[-1]["loss"]
            on_epoch(epoch, f"epoch {epoch} · loss {loss_now:.4f} · validation {score:.4f}")
            if settings.patience and epoch - best_epoch >= settings.patience:
                break
    network.load_state_dict(weights)
    return Fitted(network.eval(), best.numpy(), best_score, best_epoch, history)


def _scores(graph: Graph, problem: ServerProblem, outputs: Floats) -> Scores:
    """Return the observer's scores on true labels or edges, as for `lumos train`."""
    if problem.split is not None:
        return pair_scores(partial(dot_products, outputs), problem.split)
    return device_scores(outputs, np.asarray(graph.labels), problem.roles, graph.classes)
