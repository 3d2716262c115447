"""Several runs: the knowledge of a neighbour that saw all of them, against the printed cell.

**With a book** a label is drawn once for life. Runs at several ε show draws of one chain, so
whoever saw all of them knows what the largest ε tells: the cell that the last run prints must cover
it. **Without a book** every run draws anew, and their ε add up. **A new device** that is predicted
many times receives what its neighbours sent in the run, every time the same.

The neighbour takes the randomized labels of all runs for independent draws and chooses the
likeliest label: the best guess where they are independent, and where they are one chain it is the
randomized label of the largest ε. Runs are as short as the settings allow: how randomized labels
are drawn does not depend on it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.attacks.neighbours import most_right, public_schedule
from lumos.audit.attacks.whole_run import LABEL, spelled
from lumos.audit.harness import Recorded, Scene, printed, sent_messages, without_masked_vectors
from lumos.audit.table import AuditRow, Exactly, Proportion
from lumos.exchange.tape import Tape, recording
from lumos.runs.predict import NewDevice, predict_new_devices
from lumos.strict.settings import settings_of
from lumos.training.problem import features_of
from lumos.training.split import Role
from lumos.typing import Ints

FREE_RUNS = 8
"""Number of runs without a book."""
PREDICTIONS = 40
"""Number of predictions for one new device."""
COLUMN = "training devices"
PLENTY = {
    "lifetime_epsilon": 1e3,
    "lifetime_propagated_epsilon": 1e3,
    "lifetime_update_epsilon": 1e3,
}


def attack_repeated_releases(scene: Scene) -> Iterator[AuditRow]:
    """Yield rows of runs with a book, of runs without one, and of a new device."""
    strict = settings_of(scene.config("classify"))
    epsilon = strict.epsilon
    if strict.protect == "noise":  # exact sums have no book
        for what, levels in (
            ("at ε, then at a smaller ε", (epsilon, epsilon / 2)),
            ("at ε, then at a larger ε", (epsilon, 1.5 * epsilon)),
            ("four times at ε", (epsilon,) * 4),
        ):
            scene.say(f"runs with one book, {what}")
            yield book_row(scene, what, levels)
    scene.say(f"{FREE_RUNS} runs without a book")
    yield free_row(scene, epsilon)
    scene.say("a new device, many times")
    yield new_device_row(scene)


def short(scene: Scene, number: int, **changes: Any) -> Recorded:
    """Record a short run in which all randomized labels are sent.

    Every number is another run: a clip that is larger by a thousandth gives it randomness of its
    own, and nothing else. The same devices train, as in a federation that trains again.
    """
    wanted = settings_of(scene.config("classify"))
    few: dict[str, Any] = {"tree_network": False, "encoder_epochs": 1}
    few["epochs"] = 1 + 1 + 2 + wanted.propagated_labels + 1
    few["clip"] = wanted.clip * (1 + (1 + number) / 1000)
    if wanted.label_epsilon is not None and "epsilon" in changes:
        few["label_epsilon"] = max(wanted.label_epsilon, changes["epsilon"])
    return scene.record(scene.graph, "classify", keep=without_masked_vectors, **{**few, **changes})


def book_row(scene: Scene, what: str, levels: Sequence[float]) -> AuditRow:
    """Return the row of runs with one book; the neighbour saw all of them."""
    with TemporaryDirectory() as folder:
        book = Path(folder) / "book.npz"
        runs = [
            short(scene, number, epsilon=level, book=book, **PLENTY)
            for number, level in enumerate(levels)
        ]
        cell = printed(runs[-1].run, LABEL, COLUMN, life=True)
    return _row(
        runs,
        about=f"label, from the randomized labels of {len(levels)} runs with one book: {what}",
        cell=cell,
        claim=f"{LABEL}, {COLUMN}, as the last run prints it",
    )


def free_row(scene: Scene, epsilon: float) -> AuditRow:
    """Return the row of runs without a book, whose ε add up."""
    runs = [short(scene, number, book=None) for number in range(FREE_RUNS)]
    return _row(
        runs,
        about=f"label, from the randomized labels of {FREE_RUNS} runs without a book",
        cell=(FREE_RUNS * epsilon, 0.0),
        claim=f"runs without a book add up: {FREE_RUNS} · {epsilon:g}",
    )


def _row(
    runs: Sequence[Recorded], *, about: str, cell: tuple[float, float] | None, claim: str
) -> AuditRow:
    labels = np.asarray(runs[0].graph.labels)
    here = np.flatnonzero((runs[0].roles == Role.TRAIN) & (runs[0].graph.degrees > 0))
    counts = np.bincount(labels[here], minlength=runs[0].graph.class_count)
    prior = counts / counts.sum()
    guess = guesses(runs, here, prior)
    return REPEATED_RELEASES_ATTACK.row(
        "one neighbour, over several runs",
        about,
        "accuracy",
        Proportion(int((guess == labels[here]).sum()), len(here)),
        chance=(float(prior.max()), "the most frequent label"),
        bound=None
        if cell is None
        else (most_right(cell[0], len(prior), prior, cell[1]), f"{claim}: {spelled(cell)}"),
        knows_mechanism=True,
    )


def guesses(runs: Sequence[Recorded], devices: Ints, prior: np.ndarray) -> Ints:
    """Return [devices] the likeliest label, if all randomized labels were independent draws."""
    with np.errstate(divide="ignore"):
        score = np.tile(np.log(prior), (len(devices), 1))
    for recorded in runs:
        form = public_schedule(recorded).randomized_form
        table = form.table(settings_of(recorded.config).epsilon)
        bodies, _ = sent_messages(recorded.tape, "strict/symbol", recorded.graph.devices)
        score += np.log(table[:, form.values(bodies[devices])]).T
    guess: Ints = score.argmax(axis=1)
    return guess


def new_device_row(scene: Scene) -> AuditRow:
    """Return the bits in what the neighbours of one new device sent it after the first time."""
    recorded = scene.recorded("classify")
    sent = [new_device_messages(recorded) for _ in range(PREDICTIONS)]
    _, counts = np.unique(np.array(sent, "S"), return_counts=True)
    shares = counts / counts.sum()
    return REPEATED_RELEASES_ATTACK.row(
        "a new device, predicted many times",
        f"entropy of what its neighbours sent in {PREDICTIONS} predictions",
        "bits",
        Exactly(max(0.0, float(-(shares * np.log2(shares)).sum())), PREDICTIONS),
        bound=(0.0, "neighbours send what they sent in the run (docs/strict.md, New devices)"),
    )


def new_device_messages(recorded: Recorded) -> str:
    """Return all that the neighbours of a new device send it in one prediction, as text."""
    graph, run = recorded.graph, recorded.run
    features = features_of(graph)[[0]]
    row = np.asarray(features.toarray() if hasattr(features, "toarray") else features)[0]
    known = np.argsort(-graph.degrees, kind="stable")[:8]
    new_device = NewDevice(
        id="new device of the audit",
        features=row.astype(np.float32),
        neighbours=tuple(run.ids[device] for device in known),
    )
    with recording() as tape:
        predict_new_devices(run, [new_device], graph=graph, transport="recording")
    return _to(tape, graph.devices)


def _to(tape: Tape, device: int) -> str:
    """Return what one device received, topic by topic."""
    received = []
    for one in tape.passed:
        batch = one.batch.take(np.flatnonzero(one.batch.receiver == device))
        received.append(f"{one.topic.name} {batch.sender.tolist()} {batch.body.tolist()}")
    return "; ".join(received)


REPEATED_RELEASES_ATTACK = Attack(
    name="repeats",
    title="labels from several runs, and a new device that comes often",
    run=attack_repeated_releases,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)
