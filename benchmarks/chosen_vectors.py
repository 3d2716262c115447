"""What is it worth to askers of link scores to choose vectors, and to choose them after answers?

    python -m benchmarks.chosen_vectors [--graph facebook] [--words] [--seeds 3] [--share 0.25]
    python -m benchmarks.chosen_vectors --pairs

m askers ask every target once, and pool the buckets, as in `benchmarks.strict_link_leak`. All of
them lie about their vectors, within the norm, and know the vectors of one half of the devices:

- *principal*: principal directions of these, fixed before the first answer;
- *designed*: fixed before the first answer as well. Each query is the one that explains most of the
  variance that is left, with an offset along the mean so that thresholds divide what is expected;
- *adaptive*: the same choice for each target, given the buckets that it has answered before.

*--pairs* is about one pair of targets: the second one gets the designed queries, but its first one
or two lie along the estimate of the first one's vector.

Beliefs about a target are Gaussian, and a bucket truncates them (moments are matched). Readers of
all three have the mean of the beliefs after m answers. Whatever *adaptive* is better than
*designed*, a commitment of all askers to their vectors before the first answer would prevent.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.strict_link_leak import World, loaded, lying
from scipy.special import ndtr

from lumos.audit.attacker_models import area, comparing, evaluated_by_network, fitted
from lumos.audit.attacks.link_queries import AttackedDevices, devices_of, some_askers
from lumos.audit.harness import Scene, without_masked_vectors
from lumos.strict.link.levels import BITS, spec_for
from lumos.twoparty.score import LevelSpec, levels_of
from lumos.typing import Doubles, Flags, Ints

ASKERS = (1, 4, 16)
DIRECTIONS = 6
"""Directions of most variance that are tried for a query."""
OFFSETS = (0.0, 0.5, 1.0)
"""Lengths of the mean that is added to a direction, which has norm 1."""
LENGTHS = (1.0, 0.6)
"""Lengths of queries, in those of the largest norm."""
AT_ONCE = 2048
ROUNDING = 0.5
"""Variance that is added to that of a product, since beliefs are not Gaussian."""


class Beliefs(NamedTuple):
    """What askers believe of targets."""

    mean: Doubles
    """[targets, width]"""
    covariance: Doubles
    """[targets, width, width]"""

    @staticmethod
    def prior(known: Doubles, targets: int) -> "Beliefs":
        """The same for all targets, from vectors that are known."""
        width = known.shape[1]
        covariance = np.cov(known.T) + 0.05 * np.eye(width)
        return Beliefs(
            np.tile(known.mean(axis=0), (targets, 1)), np.tile(covariance, (targets, 1, 1))
        )

    def along(self, queries: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """[targets] mean and variance of the products, and [targets, width] covariances."""
        with_product = np.einsum("bij,bj->bi", self.covariance, queries)
        variance = np.maximum((queries * with_product).sum(axis=1), 1e-9)
        return (queries * self.mean).sum(axis=1), variance, with_product

    def given(self, queries: Doubles, levels: Ints, spec: LevelSpec) -> "Beliefs":
        """The beliefs after answers: [targets] buckets of [targets, width] queries."""
        edges = bucket_edges(spec)
        middle, variance, with_product = self.along(queries)
        deviation = np.sqrt(variance + ROUNDING)
        _, mean, left = truncated(
            (edges[levels] - middle) / deviation, (edges[levels + 1] - middle) / deviation
        )
        scale = with_product / deviation[:, None]
        shrunk = ((1 - left)[:, None] * scale)[:, :, None] * scale[:, None, :]
        return Beliefs(self.mean + scale * mean[:, None], self.covariance - shrunk)

    def expected(self, queries: Doubles, spec: LevelSpec) -> "Beliefs":
        """The same before any answer: the mean stays, and variance shrinks as expected."""
        middle, variance, with_product = self.along(queries)
        share = explained(middle, np.sqrt(variance), spec) / variance
        shrunk = (share[:, None] * with_product)[:, :, None] * with_product[:, None, :]
        return Beliefs(self.mean, self.covariance - shrunk)


def bucket_edges(spec: LevelSpec) -> Doubles:
    """[buckets + 1] between whole numbers."""
    return np.array([-np.inf, *(limit - 0.5 for limit in spec.thresholds), np.inf])


def truncated(low: Doubles, high: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Probability, mean and variance of standard normal numbers between two limits."""

    def density(at: Doubles) -> Doubles:
        return np.exp(-at * at / 2) / np.sqrt(2 * np.pi)

    def weighed(at: Doubles) -> Doubles:
        return np.where(np.isfinite(at), at, 0.0) * density(at)

    inside = np.maximum(ndtr(high) - ndtr(low), 1e-9)
    mean = (density(low) - density(high)) / inside
    variance = 1 + (weighed(low) - weighed(high)) / inside - mean**2
    return inside, mean, np.clip(variance, 1e-3, 1.0)


def explained(middle: Doubles, deviation: Doubles, spec: LevelSpec) -> Doubles:
    """[targets] share of the variance of a product that its bucket explains."""
    edges, total = bucket_edges(spec), np.zeros(len(middle))
    for low, high in pairwise(edges):
        inside, mean, _ = truncated((low - middle) / deviation, (high - middle) / deviation)
        total += inside * mean**2
    return total


def whole(vectors: Doubles, spec: LevelSpec) -> Doubles:
    """[…, width] vectors as whole numbers in range, within the norm."""
    half = 2 ** (BITS - 1)
    rounded = np.clip(np.rint(vectors), -half, half - 1)
    while (long := (rounded * rounded).sum(axis=-1) > spec.largest_norm).any():
        vectors = np.where(long[..., None], 0.96 * vectors, vectors)
        rounded = np.clip(np.rint(vectors), -half, half - 1)
    return rounded


def best_queries(beliefs: Beliefs, directions: Doubles, spec: LevelSpec) -> tuple[Doubles, Doubles]:
    """[targets, width] the queries whose buckets explain most of all variance.

    Args:
        directions: [targets, width, DIRECTIONS] to begin the search with.

    Returns:
        They, and the directions that were found.
    """
    for _ in range(3):  # subspace iteration
        directions = np.linalg.qr(beliefs.covariance @ directions)[0]
    ahead = beliefs.mean / np.linalg.norm(beliefs.mean, axis=1, keepdims=True)
    best, chosen = np.full(len(ahead), -1.0), np.zeros_like(ahead)
    for direction in np.moveaxis(directions, 2, 0):
        for sign in (1, -1):
            for offset in OFFSETS:
                wanted = sign * direction + offset * ahead
                wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
                for length in LENGTHS:
                    queries = whole(length * np.sqrt(spec.largest_norm) * wanted, spec)
                    middle, variance, with_product = beliefs.along(queries)
                    share = explained(middle, np.sqrt(variance), spec)
                    gain = share * (with_product**2).sum(axis=1) / variance
                    better = gain > best
                    best[better], chosen[better] = gain[better], queries[better]
    return chosen, directions


def first_directions(beliefs: Beliefs) -> Doubles:
    """[targets, width, DIRECTIONS] those of the prior."""
    directions = np.linalg.eigh(beliefs.covariance[0])[1][:, -DIRECTIONS:]
    return np.tile(directions, (len(beliefs.mean), 1, 1))


def nudged(directions: Doubles, rng: np.random.Generator) -> Doubles:
    """Directions that the search can turn: a new one is at right angles to all of them."""
    return directions + 0.02 * rng.standard_normal(directions.shape)


def designed(known: Doubles, spec: LevelSpec, many: int) -> Doubles:
    """[many, width] queries for any target, fixed before the first answer."""
    rng, beliefs, found = np.random.default_rng(0), Beliefs.prior(known, 1), []
    directions = first_directions(beliefs)
    for _ in range(many):
        queries, directions = best_queries(beliefs, directions, spec)
        found.append(queries[0])
        beliefs, directions = beliefs.expected(queries, spec), nudged(directions, rng)
    return np.stack(found)


def believed(
    vectors: Doubles,
    known: Doubles,
    spec: LevelSpec,
    many: Sequence[int],
    queries: Doubles | None,
) -> dict[int, Doubles]:
    """By number of answers, [targets, width] means of the beliefs.

    Args:
        vectors: [targets, width] those of the targets.
        known: [devices, width] those that askers know.
        many: numbers of answers.
        queries: [askers, width] fixed ones; None: chosen after answers.
    """
    rng = np.random.default_rng(0)
    found = {m: np.zeros(vectors.shape) for m in many}
    for start in range(0, len(vectors), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        beliefs = Beliefs.prior(known, len(vectors[some]))
        directions = first_directions(beliefs)
        for step in range(max(many)):
            if queries is None:
                asked, directions = best_queries(beliefs, directions, spec)
                directions = nudged(directions, rng)
            else:
                asked = np.tile(queries[step], (len(beliefs.mean), 1))
            beliefs, _ = answered(beliefs, vectors[some], asked, spec)
            if step + 1 in found:
                found[step + 1][some] = beliefs.mean
    return found


def read(means: Doubles, about: AttackedDevices) -> dict[str, float]:
    """What readers find in the means of beliefs: [devices, width]."""
    half, evaluated = about.halves.half, about.halves.evaluated
    (pairs, is_edge), (asked, real) = about.halves.known, about.halves.asked
    there = half | evaluated
    apart = means - means[there].mean(axis=0)
    ahead = apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 1e-9)
    alike = [(ahead[p[:, 0]] * ahead[p[:, 1]]).sum(axis=1) for p in (pairs, asked)]
    inputs = torch.from_numpy(apart / (apart[there].std(axis=0) + 1e-6)).float()
    by_network = comparing(inputs, pairs, is_edge, alike[0], asked, alike[1])
    found = {"edge": max(area(score, real).auc for score in (alike[1], by_network))}
    big = about.degree > np.median(about.degree)
    targets = np.column_stack([big, about.words])
    known, other = torch.from_numpy(half), torch.from_numpy(evaluated)
    logits = fitted(inputs[known], torch.from_numpy(targets[half]).float(), inputs[other])
    columns = logits.numpy().astype(np.float64).T
    found["degree"] = area(columns[0], big[evaluated]).auc
    words = zip(columns[1:], (about.words[evaluated] > 0).T, strict=True)
    found["words"] = float(np.mean([area(scores, held).auc for scores, held in words]))
    if about.labels is not None:
        has = about.labels >= 0
        labels = torch.from_numpy(about.labels.astype(np.int64))
        scores = fitted(inputs[half & has], labels[half & has], inputs[evaluated & has])
        found["label"] = float((scores.argmax(1) == labels[evaluated & has]).float().mean())
    return found


def some_of(about: AttackedDevices, chosen: Flags) -> AttackedDevices:
    """The same questions about some devices only."""
    halves = about.halves

    def within(pairs: Ints, real: Flags) -> tuple[Ints, Flags]:
        inside = chosen[pairs].all(axis=1)
        return pairs[inside], real[inside]

    return replace(
        about,
        halves=replace(
            halves,
            half=halves.half & chosen,
            evaluated=halves.evaluated & chosen,
            known=within(*halves.known),
            asked=within(*halves.asked),
        ),
    )


def rows(graph: Any, seed: int, share: float) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield what askers find, by how they choose and by their number."""
    scene = Scene(graph, {}, tasks=("link",), seed=seed)
    recorded = scene.record(graph, "link", keep=without_masked_vectors)
    assert recorded.split is not None
    askers = some_askers(recorded.graph, max(ASKERS))
    truth = AttackedDevices.of(recorded.graph, askers)
    chosen = np.random.default_rng(11).random(graph.devices) < share
    about = some_of(truth, chosen)
    world = World(graph, recorded, devices_of(recorded), recorded.split, about, askers)
    vectors = world.result.vectors.astype(np.float64)
    spec = spec_for(vectors.shape[1], world.result.reading.cosines)
    known = vectors[about.halves.half]
    strategies: dict[str, Doubles | None] = {
        "principal": lying(world, "principal").astype(np.float64),
        "designed": designed(known, spec, max(ASKERS)),
        "adaptive": None,
    }
    here = np.flatnonzero(chosen)
    for name, queries in strategies.items():
        found = believed(vectors[here], known, spec, ASKERS, queries)
        for m, some in found.items():
            means = np.zeros(vectors.shape)
            means[here] = some
            yield name, m, read(means, about)


# One pair of targets: queries to the second along the estimate of the first.

PAIRS = 5000
"""Pairs of either half."""


def pair_rows(graph: Any, seed: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield how well askers of two targets tell whether they are linked."""
    recorded = Scene(graph, {}, tasks=("link",), seed=seed).record(
        graph, "link", keep=without_masked_vectors
    )
    halves = AttackedDevices.of(recorded.graph, some_askers(recorded.graph, max(ASKERS))).halves
    result, rng = devices_of(recorded), np.random.default_rng(1)
    vectors = result.vectors.astype(np.float64)
    spec = spec_for(vectors.shape[1], result.reading.cosines)
    known = vectors[halves.half]
    queries, middle = designed(known, spec, max(ASKERS)), known.mean(axis=0)
    chosen = [rng.permutation(len(pairs))[:PAIRS] for pairs, _ in (halves.known, halves.asked)]
    both = list(zip((halves.known, halves.asked), chosen, strict=True))
    pairs = np.concatenate([given[some] for (given, _), some in both])
    real = np.concatenate([given[some] for (_, given), some in both])
    half = np.arange(len(pairs)) < len(chosen[0])
    one, other = (vectors[end] for end in pairs.T)
    for m in ASKERS:
        means = [believed(end, known, spec, (m,), queries)[m] for end in (one, other)]
        columns = alike(means[0] - middle, means[1] - middle)
        yield "designed", m, {"edge": by_network(columns, real, half)}
        first = 1 if m < 16 else 2
        beliefs, levels = Beliefs.prior(known, len(other)), []
        for number in range(first):
            wanted = means[0] - middle if number == 0 else means[0]
            wanted = wanted / np.maximum(np.linalg.norm(wanted, axis=1, keepdims=True), 1e-9)
            asked = whole(np.sqrt(spec.largest_norm) * wanted, spec)
            beliefs, learnt = answered(beliefs, other, asked, spec)
            levels.append(learnt)
        for query in queries[: m - first]:
            beliefs, _ = answered(beliefs, other, np.tile(query, (len(other), 1)), spec)
        columns = np.column_stack([alike(means[0] - middle, beliefs.mean - middle), *levels])
        yield "along the estimate", m, {"edge": by_network(columns, real, half)}


def alike(one: Doubles, other: Doubles) -> Doubles:
    """[pairs, 4] product, cosine and norms of two estimates."""
    norms = [np.linalg.norm(rows, axis=1) + 1e-9 for rows in (one, other)]
    product = (one * other).sum(axis=1)
    return np.stack([product, product / norms[0] / norms[1], *norms], axis=1)


def by_network(columns: Doubles, real: Flags, half: Flags) -> float:
    """AUC of a network over the half that is not known."""
    return area(evaluated_by_network(columns, real, half), real[~half]).auc


def answered(
    beliefs: Beliefs, vectors: Doubles, queries: Doubles, spec: LevelSpec
) -> tuple[Beliefs, Ints]:
    """Beliefs after one answer of each target, and [targets] the buckets."""
    levels = levels_of((queries * vectors).sum(axis=1).astype(np.int64), spec)
    return beliefs.given(queries, levels, spec), levels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="facebook")
    parser.add_argument("--words", action="store_true", help="generate features from labels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.25, help="of devices that are asked")
    parser.add_argument("--pairs", action="store_true", help="one pair of targets at a time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    graph = loaded(options)
    table: dict[tuple[str, int], list[dict[str, float]]] = {}
    for seed in range(options.seeds):
        some = pair_rows(graph, seed) if options.pairs else rows(graph, seed, options.share)
        for name, m, found in some:
            table.setdefault((name, m), []).append(found)
            figures = ", ".join(f"{what} {value:.3f}" for what, value in found.items())
            print(f"seed {seed}, {name}, m = {m}: {figures}", flush=True)
    for (name, m), each in table.items():
        figures = ", ".join(
            f"{what} {np.mean([one[what] for one in each]):.3f}"
            f" ± {np.std([one[what] for one in each], ddof=min(1, len(each) - 1)):.3f}"
            for what in each[0]
        )
        print(f"{name}, m = {m}: {figures}")


if __name__ == "__main__":
    main()
