"""Attacks on the unprotected messages of the paper profile: gradients, leaves and embeddings.

The weights of every epoch start from public randomness, and follow from the opened sums by Adam. So
whoever receives the sums has them: an attacker needs nothing else to compute with the network.

**Labels and degrees from returned gradients** (`train/leaf-gradient`). The owner of an edge gets
back the gradient of its neighbour's loss with respect to the leaf: with pooling by average,
(softmax - one-hot) W / n for the head's weights W, which are public, and n leaves. The attacker
solves for (softmax - one-hot) / n: its only negative entry is the label. In the first epoch
embeddings are nearly zero and softmax is uniform, so the size of that entry is (1 - 1/classes) / n
and tells n: the neighbours in the device's own tree, and the owners of its other edges.

**Raw features of a neighbour from embeddings of leaves** (`train/leaf`). A device u that owns the
edge u-v sends v, in every epoch, the embedding of v's leaf in u's tree. With two layers it is a
function of u's raw features x, of the features that v itself released to u, and of the weights, all
of which v knows but x. The weights change from epoch to epoch, so v gets new equations for the same
x. It looks for the x in [0, 1]^d that explains all of them best, by gradients through the network
itself, starting from and weighted by how frequent words are. Assumed: the attacker knows the
frequencies of words. Dropout is private: the attacker computes as if nothing fell, and takes what
does not fit for outliers. Beside it stands what the randomized release (`train/features`) alone
tells the owner of an edge: the only path that ε covers.

**Embeddings and their gradients, for non-neighbours** (`train/embedding…`, links). In every epoch a
device asks its neighbours, and as many non-neighbours drawn at random, for embeddings, and sends
each a gradient: c · its own embedding, with c < 0 for a neighbour and c > 0 for a non-neighbour. So
a non-neighbour that asked has an embedding made of raw features, a non-neighbour that was asked has
the direction of the asker's, and the asked learns whether it is taken for a neighbour, which it
knows in any case. Non-neighbours who pool embeddings of one epoch score pairs as the model itself
does. Assumed: attackers know the truth about one half of all devices, and fit linear readers on
them.
"""

import math
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from lumos.audit.attacker_models import area, ridge_scores
from lumos.audit.attacks import attack
from lumos.audit.harness import Recorded, Scene, opened_sums, slots_of
from lumos.audit.table import AuditRow, CertifiedEpsilon, Mean, Proportion, finding
from lumos.device.randomness import PublicRandomness
from lumos.exchange.messages import Batch
from lumos.ldp import joined, read, recover
from lumos.ldp.one_bit import ONE_BIT, RecoveredFeatures, Released
from lumos.model.layers import EIGHTH, TreeGCN
from lumos.model.tree_tensors import as_dense, project
from lumos.paper.messages import on_leaves
from lumos.paper.profile import settings_of
from lumos.paper.trainer import FullModel
from lumos.paper.updates import SumLayout
from lumos.training.metrics import auc
from lumos.training.problem import features_of
from lumos.training.split import Role
from lumos.training.trainer import Adam
from lumos.typing import Doubles, Flags, Floats, Ints


def network_of(recorded: Recorded) -> FullModel:
    """Return the network of a run with its first weights."""
    graph, config = recorded.graph, recorded.config
    classes = graph.class_count if config.train.task == "classify" else 0
    model = FullModel(config.model, graph.feature_count, classes)
    model.initialise(PublicRandomness(recorded.run.about.seed).generator("weights"))
    return model


def weights_by_epoch(recorded: Recorded) -> Iterator[Doubles]:
    """Yield [weights] with which the messages of each epoch were computed."""
    train = recorded.config.train
    model = network_of(recorded)
    adam = Adam(model.vector(), train.learning_rate, train.weight_decay)
    layout = SumLayout(recorded.config, recorded.graph.devices, model.sizes)
    for total in opened_sums(recorded):
        yield adam.weights
        gradient, (_, count, _, _) = layout.read(total)
        for _ in range(settings_of(recorded.config).local_steps):
            adam.step(gradient / count)


def rows_in(batch: Batch, sender: Ints, receiver: Ints, devices: int) -> Floats:
    """Return [pairs, width] what each sender sent each receiver in one round."""
    place = places_in(batch, sender, receiver, devices)
    rows: npt.NDArray[np.uint8] = np.ascontiguousarray(batch.body[place])
    return rows.view("<f4").astype(np.float32)


def places_in(batch: Batch, sender: Ints, receiver: Ints, devices: int) -> Ints:
    """Return [pairs] the positions of the messages of these pairs in a round.

    Raises:
        ValueError: a pair exchanged no message.
    """
    keys = batch.receiver * devices + batch.sender  # increasing: the order of a tape
    wanted = receiver * devices + sender
    place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    if len(wanted) and not (len(keys) and np.array_equal(keys[place], wanted)):
        raise ValueError("a pair exchanged no message in this round")
    return place


def one_each(subject: Ints, most: int, generator: np.random.Generator) -> Ints:
    """Draw positions of at most `most` messages, each about another device."""
    order = generator.permutation(len(subject))
    _, first = np.unique(subject[order], return_index=True)
    chosen: Ints = generator.permutation(order[first])[:most]
    return chosen


def one_per_sender(batch: Batch, wanted: Flags, most: int) -> tuple[Ints, Ints]:
    """Draw at most `most` of the wanted messages, one of each sender.

    Returns:
        The sender and the receiver of each.
    """
    here = np.flatnonzero(wanted)
    chosen = here[one_each(batch.sender[here], most, np.random.default_rng(0))]
    return batch.sender[chosen], batch.receiver[chosen]


# Labels and degrees from returned gradients.

MAX_GRADIENT_VICTIMS = 4000
"""Devices whose gradients are read, at most."""
NEAR = 0.2
"""Largest relative error of a degree that counts as found."""


@attack("gradient-labels", "labels and degrees from gradients of leaves", "paper", "classify")
def attack_gradient_labels(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the gradients that watched devices received tell."""
    recorded = scene.recorded("classify")
    victim, attacker = victims(recorded, scene.watched())
    slopes = solved(recorded, victim, attacker)
    labels = np.asarray(recorded.graph.labels)[victim]
    most = int(np.bincount(labels).max()) if len(labels) else 0
    for epochs in dict.fromkeys((1, min(10, len(slopes)), len(slopes))):
        guess = label_guess(slopes[:epochs])
        yield finding(
            "one neighbour",
            "label of a training device, from gradients of the edge that the attacker "
            f"carries, {epochs} epoch{'s' * (epochs > 1)}",
            "accuracy",
            Proportion(int((guess == labels).sum()), len(labels)),
            chance=(most / max(1, len(labels)), "the most frequent label"),
            knows_mechanism=True,
        )
    guess, truth = leaves_guess(slopes[0]), leaves(recorded)
    degree = recorded.graph.degrees
    yield finding(
        "one neighbour",
        "number of leaves of a training device, from the size of the first gradient",
        "accuracy",
        Proportion(int((guess == truth[victim]).sum()), len(victim)),
        chance=(float((truth[attacker] == truth[victim]).mean()), "the attacker's own number"),
        knows_mechanism=True,
    )
    yield finding(
        "one neighbour",
        f"degree of a training device within {NEAR:.0%}, from the number of leaves",
        "accuracy",
        # Edges that both ends own count twice: about as often as at the attacker itself.
        _near(guess * degree[attacker] / truth[attacker], degree[victim]),
        chance=(_near(degree[attacker], degree[victim]).value, "the attacker's own degree"),
    )


def leaves(recorded: Recorded) -> Ints:
    """Return [devices] leaves that stand for each device: in its own tree and those of owners."""
    trees, graph = recorded.run.trees, recorded.graph
    owners = np.bincount(graph.neighbours[trees.keep], minlength=graph.devices)
    own = np.maximum(trees.workload, 1) if settings_of(recorded.config).virtual_nodes else 1
    standing: Ints = own + owners
    return standing


def victims(recorded: Recorded, watched: Flags) -> tuple[Ints, Ints]:
    """Return training devices, and for each one watched device that owns their edge."""
    first = recorded.tape.messages("train/leaf-gradient")[0]
    trains = recorded.roles[first.sender] == Role.TRAIN
    return one_per_sender(first, watched[first.receiver] & trains, MAX_GRADIENT_VICTIMS)


def solved(recorded: Recorded, victim: Ints, attacker: Ints) -> Doubles:
    """Return [epochs, victims, classes] least-squares solutions for (softmax - one-hot) / n."""
    model, devices = network_of(recorded), recorded.graph.devices
    batches = recorded.tape.messages("train/leaf-gradient")
    found = []
    for weights, batch in zip(weights_by_epoch(recorded), batches, strict=True):
        model.load(weights)
        if model.head is None:
            raise ValueError("a run of `classify` has a head")
        head = model.head.weight.detach().numpy().astype(np.float64)
        rows = torch.from_numpy(rows_in(batch, victim, attacker, devices).astype(np.float64))
        found.append((rows @ torch.from_numpy(np.linalg.pinv(head))).numpy())
    return np.stack(found)


def label_guess(slopes: Doubles) -> Ints:
    """Return [victims] the entry that is most negative, each epoch by its own size."""
    size = np.abs(slopes).sum(axis=2, keepdims=True)
    guess: Ints = (slopes / np.maximum(size, 1e-300)).sum(axis=0).argmin(axis=1)
    return guess


def leaves_guess(slope: Doubles) -> Ints:
    """Return [victims] leaves, by the first gradient, where softmax is uniform."""
    classes = slope.shape[1]
    leaves = np.rint((1 - 1 / classes) / np.maximum(-slope.min(axis=1), 1e-12))
    guess: Ints = leaves.astype(np.int64)
    return guess


def _near(guess: Doubles | Ints, truth: Ints) -> Proportion:
    return Proportion(int((np.abs(guess - truth) <= NEAR * truth).sum()), len(truth))


# Raw features of a neighbour from embeddings of leaves.

Misfit = Callable[[Tensor], Tensor]
"""Function from [victims, d] to the gradient of their misfit with what was seen."""

MAX_LEAF_VICTIMS = 80
"""Devices whose features are searched for, at most."""
MAX_RELEASES = 2000
"""Devices whose releases are read, at most."""
STEPS, RATE = 160, 0.3
SPREAD = 0.02
"""Error that the attacker expects, relative to a message's mean size."""
PRESENT = 0.5
"""Score above which a word counts as found."""


@attack("leaf-features", "raw features from embeddings of leaves", "paper")
def attack_leaf_features(scene: Scene) -> Iterator[AuditRow]:
    """Yield what the leaves that watched devices received tell, for each task."""
    for task in scene.tasks:
        recorded = scene.recorded(task)
        if not attackable(recorded):
            continue
        victim, attacker = leaf_victims(recorded, scene.watched())
        truth = words(recorded, victim)
        often = frequencies(recorded)
        prior = np.broadcast_to(often, truth.shape)
        epochs = len(recorded.tape.messages("train/leaf-gradient"))
        for many in dict.fromkeys((1, min(10, epochs), epochs)):
            scene.say(f"searching for features by {many} of {epochs} epochs ({task})")
            found = searched(recorded, victim, attacker, often, many)
            what = f"from embeddings of leaves, {many} epoch{'s' * (many > 1)}"
            yield _ranked(
                task, f"raw features of the owner of an edge, {what}", found, truth, prior
            )
        yield _share(task, f"words of the owner of an edge, {what}", found, truth, prior)
        yield finding(
            "one neighbour",
            f"{task}: all words of the owner of an edge and no other, {what}",
            "share of devices",
            Proportion(int(((found > PRESENT) == truth).all(axis=1).sum()), len(truth)),
            chance=(
                float(((prior > PRESENT) == truth).all(axis=1).mean()),
                "the most frequent words",
            ),
        )
        if settings_of(recorded.config).noisy:
            yield from _releases(task, recorded, scene.watched(), often)


def attackable(recorded: Recorded) -> bool:
    """Return whether the network has the equations of `LeafEquations`: the default has."""
    model = recorded.config.model
    paper = settings_of(recorded.config)
    ours = model.fast and paper.encoder == ONE_BIT
    return ours and model.backbone == "gcn" and model.layers == 2 and paper.virtual_nodes


def leaf_victims(
    recorded: Recorded, watched: Flags, most: int = MAX_LEAF_VICTIMS
) -> tuple[Ints, Ints]:
    """Return owners of edges, and for each one watched neighbour to which it sends a leaf."""
    first = recorded.tape.messages("train/leaf")[0]
    return one_per_sender(first, watched[first.receiver], most)


def words(recorded: Recorded, devices: Ints) -> Flags:
    """Return [devices, d] the truth: which features are above the midpoint."""
    rows = as_dense(features_of(recorded.graph)[devices]).numpy()
    flags: Flags = rows > settings_of(recorded.config).midpoint
    return flags


def frequencies(recorded: Recorded) -> Doubles:
    """Return [d] the frequency of each word, strictly between 0 and 1."""
    features = features_of(recorded.graph)
    share = np.asarray((features > settings_of(recorded.config).midpoint).mean(axis=0)).ravel()
    floor = 1 / (2 * recorded.graph.devices)
    often: Doubles = np.clip(share, floor, 1 - floor)
    return often


class LeafEquations:
    """Equations from the owner's features to one neighbour's leaf, in several epochs at once.

    By the formulas of `lumos.model.layers` for two layers: z = x W and z' = x' W for the features
    x of the owner and x' of the neighbour, act(.) = ReLU divided by 1 - chance of dropout,

        leaf = act(z'/2 + b), parent = act((z + z')/√8 + b), leaf' = (leaf/2 + parent/√8) W' + b'

    Args:
        recorded: the run.
        epochs: number of epochs.
        released: [victims, d] x'.
    """

    def __init__(self, recorded: Recorded, epochs: int, released: RecoveredFeatures) -> None:
        config = recorded.config.model
        self._factor, self._last = 1 / (1 - config.dropout), config.activate_last
        tables, first, matrices, second, theirs = [], [], [], [], []
        model = network_of(recorded)
        for weights in islice(weights_by_epoch(recorded), epochs):
            model.load(weights)
            layers = [layer for layer in model.network.layers if isinstance(layer, TreeGCN)]
            with torch.no_grad():
                tables.append(layers[0].weight.clone())
                first.append(layers[0].bias.clone())
                matrices.append(layers[1].weight.clone())
                second.append(layers[1].bias.clone())
                theirs.append(project(released, layers[0].weight))
        self._width = tables[0].shape[1]
        self._table = torch.cat(tables, dim=1)  # [d, epochs · width]: one product for all epochs
        self._first, self._second = (torch.stack(some)[:, None] for some in (first, second))
        self._matrix, self._theirs = torch.stack(matrices), torch.stack(theirs)

    def leaves(self, x: Tensor) -> Tensor:
        """Return [epochs, victims, width] leaves for [victims, d] features."""
        mine = (x @ self._table).view(len(x), -1, self._width).transpose(0, 1)
        leaf = self._act(self._theirs / 2 + self._first)
        parent = self._act((mine + self._theirs) * EIGHTH + self._first)
        out = torch.bmm(leaf / 2 + parent * EIGHTH, self._matrix) + self._second
        return self._act(out) if self._last else out

    def _act(self, rows: Tensor) -> Tensor:
        return torch.relu(rows) * self._factor


def searched(
    recorded: Recorded, victim: Ints, attacker: Ints, often: Doubles, epochs: int
) -> Doubles:
    """Return [victims, d], from 0 to 1, what explains the leaves of the first epochs best."""
    equations = LeafEquations(recorded, epochs, _released(recorded, attacker, victim))
    devices, batches = recorded.graph.devices, recorded.tape.messages("train/leaf")[:epochs]
    seen = torch.from_numpy(
        np.stack([rows_in(batch, victim, attacker, devices) for batch in batches])
    )
    size = SPREAD * seen.abs().mean(dim=(1, 2), keepdim=True) + 1e-12

    def misfit(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        loss = smooth_l1_loss(equations.leaves(x) / size, seen / size, reduction="sum")
        (slope,) = torch.autograd.grad(loss, x)
        return slope

    return explained(misfit, often, len(victim))


def explained(misfit: Misfit, often: Doubles, many: int) -> Doubles:
    """Return the x that fits best and is likely: a word that is there costs -log frequency."""
    start = torch.from_numpy(np.log(often / (1 - often)).astype(np.float32))
    price = torch.from_numpy(-np.log(often).astype(np.float32))
    logits = start.repeat(many, 1).clone().requires_grad_(True)
    adam = torch.optim.Adam([logits], RATE, betas=(0.9, 0.99))
    for step in range(STEPS):
        for group in adam.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        adam.zero_grad()
        x = torch.sigmoid(logits)
        x.backward(misfit(x) + price)  # type: ignore[no-untyped-call]
        adam.step()
    found: Doubles = torch.sigmoid(logits).detach().numpy().astype(np.float64)
    return found


def _releases(task: str, recorded: Recorded, watched: Flags, often: Doubles) -> Iterator[AuditRow]:
    """Yield what the randomized release alone tells: likelihoods of its bits, with the true ε'."""
    (batch, *_) = recorded.tape.messages("train/features")
    victim, attacker = one_per_sender(batch, watched[batch.receiver], MAX_RELEASES)
    released = _read(recorded, victim, attacker)
    epsilon = settings_of(recorded.config).epsilon
    truth = words(recorded, victim)
    row = np.repeat(np.arange(len(victim)), released.counts)
    elements, bits = released.elements, released.bits
    each = (epsilon / released.largest)[row]  # ε' = ε/s; the ratio of a bit is e^±ε'
    prior = np.log(often / (1 - often))
    scores = np.tile(prior, (len(victim), 1))
    scores[row, elements] += np.where(bits, each, -each)
    about = "raw features of a neighbour, from its release under ε alone"
    yield _ranked(
        task, about, scores, truth, np.broadcast_to(often, truth.shape), knows_mechanism=True
    )
    there = truth[row, elements]
    yield finding(
        "one neighbour",
        f"{task}: ε that the bits of releases certify: one word there, or not",
        "ε",
        CertifiedEpsilon(
            int((bits & there).sum()),
            max(1, int(there.sum())),
            int((bits & ~there).sum()),
            max(1, int((~there).sum())),
        ),
        bound=(
            epsilon,
            f"`train/features`: at most ε = {epsilon:g} per receiver (docs/privacy.md)",
        ),
        knows_mechanism=True,
    )


def _ranked(
    task: str,
    about: str,
    scores: Doubles,
    truth: Flags,
    prior: Doubles,
    *,
    knows_mechanism: bool = False,
) -> AuditRow:
    return finding(
        "one neighbour",
        f"{task}: {about}",
        "mean AUC of words",
        _mean(_areas(scores, truth)),
        chance=(_mean(_areas(prior, truth)).value, "how frequent words are"),
        knows_mechanism=knows_mechanism,
        note="weights are those that follow from the opened sums; frequencies of words are known",
    )


def _share(task: str, about: str, scores: Doubles, truth: Flags, prior: Doubles) -> AuditRow:
    return finding(
        "one neighbour",
        f"{task}: {about}: of the k likeliest, where the device has k",
        "share that is right",
        _mean(_right(scores, truth)),
        chance=(_mean(_right(prior, truth)).value, "the k most frequent words"),
    )


def _areas(scores: Doubles, truth: Flags) -> Doubles:
    """Return [devices] the AUC of each device's words among all words."""
    rows = [
        auc(of[there], of[~there])
        for of, there in zip(scores.astype(np.float64), truth, strict=True)
        if there.any() and not there.all()
    ]
    return np.array(rows)


def _right(scores: Doubles, truth: Flags) -> Doubles:
    """Return [devices] the share of the k likeliest words that a device with k words has."""
    rows = []
    for of, there in zip(scores, truth, strict=True):
        k = int(there.sum())
        if k:
            rows.append(float(there[np.argsort(-of, kind="stable")[:k]].mean()))
    return np.array(rows)


def _mean(values: Doubles) -> Mean:
    many = len(values)
    spread = float(values.std(ddof=1)) if many > 1 else 1.0
    return Mean(float(values.mean()) if many else math.nan, spread / math.sqrt(max(1, many)), many)


def _released(recorded: Recorded, sender: Ints, receiver: Ints) -> RecoveredFeatures:
    """Return what receivers put on the senders' leaves; the senders sent it, and so know it."""
    paper = settings_of(recorded.config)
    return on_leaves(recover(_read(recorded, sender, receiver), paper), paper, paper.recovery)


def _read(recorded: Recorded, sender: Ints, receiver: Ints) -> Released:
    noisy, graph = settings_of(recorded.config).noisy, recorded.graph
    name = "train/features" if noisy else "train/features-in-the-clear"
    parts = []
    for number, batch in enumerate(recorded.tape.messages(name)):
        wanted = receiver * graph.devices + sender
        here = np.flatnonzero(np.isin(wanted, batch.receiver * graph.devices + batch.sender))
        rows = here if number else np.arange(len(wanted))
        place = places_in(batch, sender[rows], receiver[rows], graph.devices)
        lengths = batch.lengths
        parts.append(
            (rows, batch.body[place], np.zeros(0, np.int64) if lengths is None else lengths[place])
        )
    return read(joined(parts, len(sender)), graph.feature_count, noisy=noisy)


# Embeddings and their gradients, for non-neighbours.

WORDS = 20
"""Number of frequent words that attackers look for."""
EPOCHS = 5
"""Number of last epochs that are read: embeddings of neighbouring epochs are alike."""
MAX_EMBEDDINGS = 20_000
"""Embeddings, or edges, that are read, at most."""


@attack(
    "embedding-neighbours",
    "features and edges from embeddings that non-neighbours get",
    "paper",
    "link",
)
def attack_embedding_neighbours(scene: Scene) -> Iterator[AuditRow]:
    """Yield what watched devices learn from non-neighbours in the last epochs."""
    recorded, watched = scene.recorded("link"), scene.watched()
    embeddings = recorded.tape.messages("train/embedding")
    gradients = recorded.tape.messages("train/embedding-gradient")
    yield _neighbour_row(recorded, watched, embeddings[-1], gradients[-1])
    asked = _of_non_neighbours(recorded, watched, embeddings[-EPOCHS:])
    yield _words_row(recorded, *asked, "a non-neighbour that asked", "one embedding of it")
    sender, rows = _of_non_neighbours(recorded, watched, gradients[-EPOCHS:])
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    moving = size[:, 0] > 0
    yield _words_row(
        recorded,
        sender[moving],
        rows[moving] / size[moving],
        "a non-neighbour that was asked",
        "one gradient of the asker",
    )
    yield _pairs_row(recorded, watched, embeddings[-1])


def neighbour_scores(
    recorded: Recorded, watched: Flags, embeddings: Batch, gradients: Batch
) -> tuple[Doubles, Flags]:
    """Return -⟨gradient, own embedding⟩ of each gradient to a watched device, and the truth.

    With s = ⟨h, h'⟩ the gradient's product is -σ(-s) s for a neighbour and σ(s) s for a
    non-neighbour.
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
    return finding(
        "a device that was asked",
        "link: whether the asker is a neighbour, from one gradient",
        "AUC",
        area(scores, near),
        chance=(1.0, "its own list of neighbours"),
        note="an edge is known to both ends: the gradient tells them nothing new",
    )


def _words_row(
    recorded: Recorded, subject: Ints, columns: Doubles, adversary: str, what: str
) -> AuditRow:
    some = np.random.default_rng(0).permutation(len(subject))[:MAX_EMBEDDINGS]
    subject, columns = subject[some], columns[some]
    features = features_of(recorded.graph)
    often = np.asarray((features > 0).mean(axis=0)).ravel()
    frequent = np.argsort(-np.minimum(often, 1 - often), kind="stable")[:WORDS]
    truth = as_dense(features[:, frequent]).numpy()[subject] > 0
    known = (np.random.default_rng(1).random(recorded.graph.devices) < 0.5)[subject]
    scores = ridge_scores(columns, truth.astype(np.float64), known)
    asked = truth[~known]
    areas = [
        area(scores[:, word], asked[:, word])
        for word in range(truth.shape[1])
        if 0 < asked[:, word].sum() < len(asked)
    ]
    low, high = zip(*(one.interval(0.682689) for one in areas), strict=True)
    return finding(
        adversary,
        f"link: {len(areas)} frequent words of a device, from {what}",
        "mean AUC",
        # The error of one word, not of their mean: words are correlated.
        Mean(
            float(np.mean([one.auc for one in areas])),
            float(np.mean(np.subtract(high, low))) / 2,
            int((~known).sum()),
        ),
        chance=(0.5, "guessing"),
        note="a linear reader, fitted on one half of all devices",
    )


def _pairs_row(recorded: Recorded, watched: Flags, embeddings: Batch) -> AuditRow:
    """Return the row about pairs of devices whose embeddings non-neighbours received."""
    graph, rng = recorded.graph, np.random.default_rng(0)
    sender, rows = _of_non_neighbours(recorded, watched, [embeddings])
    each = one_each(sender, len(sender), rng)
    place = np.full(graph.devices, -1)
    place[sender[each]] = each
    edges = graph.edge_list()
    edges = edges[(place[edges] >= 0).all(axis=1)]
    edges = edges[rng.permutation(len(edges))[:MAX_EMBEDDINGS]]
    far = rng.choice(sender[each], (2 * len(edges) + 10, 2))
    far = far[(far[:, 0] != far[:, 1]) & (slots_of(graph, far[:, 0], far[:, 1]) < 0)]
    pairs = np.concatenate([edges, far[: len(edges)]])
    scores = (rows[place[pairs[:, 0]]] * rows[place[pairs[:, 1]]]).sum(axis=1)
    return finding(
        "pooled non-neighbours",
        "link: whether two devices that they asked in one epoch are linked, from embeddings",
        "AUC",
        area(scores, np.arange(len(pairs)) < len(edges)),
        chance=(0.5, "guessing"),
        note="products of embeddings, as the model scores pairs",
    )


def _of_non_neighbours(
    recorded: Recorded, watched: Flags, batches: list[Batch]
) -> tuple[Ints, Doubles]:
    """Return senders, and the numbers that they sent to watched non-neighbours."""
    senders, rows = [], []
    for batch in batches:
        far = slots_of(recorded.graph, batch.receiver, batch.sender) < 0
        here = np.flatnonzero(watched[batch.receiver] & far)
        senders.append(batch.sender[here])
        rows.append(_numbers(batch.body[here]))
    return np.concatenate(senders), np.concatenate(rows)


def _numbers(body: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]") -> Doubles:
    return np.ascontiguousarray(body).view("<f4").astype(np.float64)
