"""What embeddings and their gradients tell strangers (`train/embedding…`, links, paper profile).

In every epoch a device asks its neighbours, and as many strangers drawn at random, for embeddings,
and sends each a gradient: c · its own embedding, with c < 0 for a neighbour and c > 0 for a
stranger. So a stranger that asked has an embedding made of raw features, a stranger that was asked
has the direction of the asker's, and the asked learns whether it is taken for a neighbour, which it
knows in any case. Strangers who pool embeddings of one epoch score pairs as the model itself does.

Assumed: attackers know the truth about one half of all devices, and fit linear readers on them.
"""

import math
from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.attacks.paper_weights import one_each, places_in
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Area, Mean
from lumos.audit.ridge import ridge_scores
from lumos.audit.scene import Recorded, Scene
from lumos.audit.views import slots_of
from lumos.exchange.batch import Batch
from lumos.model.feature_products import as_dense
from lumos.training.metrics import auc
from lumos.training.problem import features_of
from lumos.typing import Doubles, Flags, Ints

WORDS = 20
"""Frequent words that attackers look for."""
EPOCHS = 5
"""The last ones: embeddings of neighbouring epochs are alike."""
MOST = 20_000


def run(scene: Scene) -> Iterator[AuditRow]:
    """By what watched devices received from strangers in the last epochs."""
    recorded, watched = scene.recorded("link"), scene.watched()
    embeddings = recorded.tape.messages("train/embedding")
    gradients = recorded.tape.messages("train/embedding-gradient")
    yield _neighbour_row(recorded, watched, embeddings[-1], gradients[-1])
    asked = _of_strangers(recorded, watched, embeddings[-EPOCHS:])
    yield _words_row(recorded, *asked, "a stranger that asked", "one embedding of it")
    sender, rows = _of_strangers(recorded, watched, gradients[-EPOCHS:])
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    told = size[:, 0] > 0
    yield _words_row(
        recorded,
        sender[told],
        rows[told] / size[told],
        "a stranger that was asked",
        "one gradient of the asker",
    )
    yield _pairs_row(recorded, watched, embeddings[-1])


def neighbour_scores(
    recorded: Recorded, watched: Flags, embeddings: Batch, gradients: Batch
) -> tuple[Doubles, Flags]:
    """Of each gradient that a watched device received: -⟨gradient, own embedding⟩, and the truth.

    With s = ⟨h, h'⟩ the gradient's product is -σ(-s) s for a neighbour and σ(s) s for a stranger.
    """
    here = np.flatnonzero(watched[gradients.receiver])
    asker, asked = gradients.sender[here], gradients.receiver[here]
    own = embeddings.body[places_in(embeddings, asked, asker, recorded.graph.devices)]
    product = (_numbers(own) * _numbers(gradients.body[here])).sum(axis=1)
    return -product, slots_of(recorded.graph, asked, asker) >= 0


def _neighbour_row(
    recorded: Recorded, watched: Flags, embeddings: Batch, gradients: Batch
) -> AuditRow:
    scores, near = neighbour_scores(recorded, watched, embeddings, gradients)
    return AuditRow(
        attack=ATTACK.name,
        adversary="a device that was asked",
        about="link: whether the asker is a neighbour, from one gradient",
        measure="AUC",
        estimate=_area(scores, near),
        chance=1.0,
        chance_is="its own list of neighbours",
        note="an edge is known to both ends: the gradient tells them nothing new",
    )


def _words_row(
    recorded: Recorded, subject: Ints, columns: Doubles, adversary: str, what: str
) -> AuditRow:
    some = np.random.default_rng(0).permutation(len(subject))[:MOST]
    subject, columns = subject[some], columns[some]
    features = features_of(recorded.graph)
    often = np.asarray((features > 0).mean(axis=0)).ravel()
    frequent = np.argsort(-np.minimum(often, 1 - often), kind="stable")[:WORDS]
    truth = as_dense(features[:, frequent]).numpy()[subject] > 0
    known = (np.random.default_rng(1).random(recorded.graph.devices) < 0.5)[subject]
    scores = ridge_scores(columns, truth.astype(np.float64), known)
    asked = truth[~known]
    areas = [
        _area(scores[:, word], asked[:, word])
        for word in range(truth.shape[1])
        if 0 < asked[:, word].sum() < len(asked)
    ]
    low, high = zip(*(area.interval(0.682689) for area in areas), strict=True)
    return AuditRow(
        attack=ATTACK.name,
        adversary=adversary,
        about=f"link: {len(areas)} frequent words of a device, from {what}",
        measure="mean AUC",
        # The error of one word, not of their mean: words are correlated.
        estimate=Mean(
            float(np.mean([area.auc for area in areas])),
            float(np.mean(np.subtract(high, low))) / 2,
            int((~known).sum()),
        ),
        chance=0.5,
        chance_is="guessing",
        note="a linear reader, fitted on one half of all devices",
    )


def _pairs_row(recorded: Recorded, watched: Flags, embeddings: Batch) -> AuditRow:
    """Embeddings of one epoch that strangers received, each device once, and pairs of them."""
    graph, rng = recorded.graph, np.random.default_rng(0)
    sender, rows = _of_strangers(recorded, watched, [embeddings])
    each = one_each(sender, len(sender), rng)
    place = np.full(graph.devices, -1)
    place[sender[each]] = each
    edges = graph.edge_list()
    edges = edges[(place[edges] >= 0).all(axis=1)]
    edges = edges[rng.permutation(len(edges))[:MOST]]
    far = rng.choice(sender[each], (2 * len(edges) + 10, 2))
    far = far[(far[:, 0] != far[:, 1]) & (slots_of(graph, far[:, 0], far[:, 1]) < 0)]
    pairs = np.concatenate([edges, far[: len(edges)]])
    scores = (rows[place[pairs[:, 0]]] * rows[place[pairs[:, 1]]]).sum(axis=1)
    return AuditRow(
        attack=ATTACK.name,
        adversary="pooled strangers",
        about="link: whether two devices that they asked in one epoch are linked, from embeddings",
        measure="AUC",
        estimate=_area(scores, np.arange(len(pairs)) < len(edges)),
        chance=0.5,
        chance_is="guessing",
        note="products of embeddings, as the model scores pairs",
    )


def _of_strangers(recorded: Recorded, watched: Flags, batches: list[Batch]) -> tuple[Ints, Doubles]:
    """Senders, and the numbers that they sent to watched devices that are no neighbours."""
    senders, rows = [], []
    for batch in batches:
        far = slots_of(recorded.graph, batch.receiver, batch.sender) < 0
        here = np.flatnonzero(watched[batch.receiver] & far)
        senders.append(batch.sender[here])
        rows.append(_numbers(batch.body[here]))
    return np.concatenate(senders), np.concatenate(rows)


def _numbers(body: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> Doubles:
    return np.ascontiguousarray(body).view("<f4").astype(np.float64)


def _area(scores: Doubles, truth: Flags) -> Area:
    positives, negatives = int(truth.sum()), int((~truth).sum())
    found = auc(scores[truth], scores[~truth]) if positives and negatives else math.nan
    return Area(found, positives, negatives)


ATTACK = Attack(
    name="embedding-neighbours",
    title="features and edges from embeddings that strangers get",
    run=run,
    profiles=frozenset({"paper"}),
    tasks=frozenset({"link"}),
)
