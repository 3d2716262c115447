"""The table of promises of `classify`: what is guaranteed about what. No cell claims more.

Every figure holds against everybody at once: neighbours, alone or together, strangers and the
coordinator, with up to as many devices colluding as masked sums allow. Rows answer two questions,
"this or another in its place" and "in the sums or zeros instead"; columns are roles of devices.

**Label.** Everything is a function of the randomized label: pure ε, any two labels. With
`label_epsilon=inf` sums see the label itself: ε of the symbol, and the sums' (ε, δ).
**Features.** They are in sums only. For the same randomized label, other features move a vector by
`Reach.features`. A device without a label adds nothing to any sum.
**Whole record.** First other features, (ε, δ), then another label, pure: ε adds up, δ does not.
**Membership.** Zeros in place of a device's vectors, its messages unchanged. For a device that is
not there at all there is no promise: its neighbours' opinions change with it.
**Edge.** One edge changes the opinions of its two ends, ε_m each, and their vectors in the sums
after the release. The opinions of others, and all that follows, are functions of what was sent.
**Degree.** As many edges at once: no useful bound.
"""

import math

from lumos.strict.classify_schedule import ENCODER, ClassifySchedule
from lumos.strict.settings import StrictSettings
from lumos.strict.vote import Vote
from lumos.strict.wording import NONE, shortcuts, up
from lumos.training.split import Role

ROLES = {
    "training devices": Role.TRAIN,
    "validation devices": Role.VALIDATION,
    "other devices": Role.TEST,
}
WEAK = 0.4
"""Strength r of a randomized label below which a run warns."""
WIDE = 0.05
"""Standard error of the voted accuracy above which a run warns."""


def promises(schedule: ClassifySchedule) -> list[dict[str, str]]:
    """One row for each question, one column for each role."""
    rows = {
        "label: this one or another": _label,
        "features: these or others": _features,
        "whole record: this or another": _record,
        "label, features, membership: vectors in the sums or zeros, messages unchanged": _presence,
        "membership: there or not there at all": lambda *_: NONE,
        "one edge: there or not": _edge,
        "one edge: this or another at one end": _other_edge,
        "degree": lambda *_: f"{NONE}: as many edges at once",
    }
    return [
        {"about": about, **{name: cell(schedule, role) for name, role in ROLES.items()}}
        for about, cell in rows.items()
    ]


def _label(schedule: ClassifySchedule, role: Role) -> str:
    if role == Role.TEST:
        return "not used"
    strict = schedule.strict
    if not math.isinf(strict.sums_epsilon):
        return f"ε = {up(strict.sums_epsilon)}, pure"
    symbol = strict.epsilon if role == Role.TRAIN else 0.0
    return _with_sums(schedule, role, "label", symbol)


def _features(schedule: ClassifySchedule, role: Role) -> str:
    if role == Role.TEST:
        return "they never leave the device"
    return _with_sums(schedule, role, "features")


def _record(schedule: ClassifySchedule, role: Role) -> str:
    if role == Role.TEST:
        return "it never leaves the device"
    strict = schedule.strict
    if math.isinf(strict.sums_epsilon):
        return _label(schedule, role)
    return _with_sums(schedule, role, "features", strict.sums_epsilon)


def _presence(schedule: ClassifySchedule, role: Role) -> str:
    if role == Role.TEST:
        return "no vector in any sum"
    return _with_sums(schedule, role, "norm")


def _edge(schedule: ClassifySchedule, role: Role) -> str:
    return _with_sums(schedule, role, "edge", schedule.edge_messages, ends=2)


def _other_edge(schedule: ClassifySchedule, role: Role) -> str:
    # One end swaps a neighbour; the old one and the new one lose and gain an edge.
    return _with_sums(schedule, role, "edge", 1.5 * schedule.edge_messages, ends=4)


def _with_sums(
    schedule: ClassifySchedule, role: Role, question: str, epsilon: float = 0.0, ends: int = 1
) -> str:
    """ε of messages and the sums' (ε, δ) together."""
    mu = ends * schedule.mu(role, question)
    if not schedule.noisy and schedule.stages_of(role):
        exact = {
            "none": "exact sums show single holders",
            "holders": "exact sums, features of few holders left out",
            "projection": "exact sums of mixed features",
        }[schedule.strict.protect]
        return f"{NONE} by the sums: {exact}" + f"; ε = {up(epsilon)} by messages" * (epsilon > 0)
    spent = schedule.account(mu)
    if spent is None or mu == 0:
        return f"ε = {up(epsilon)}, pure"
    return f"({up(epsilon + spent[0])}, {spent[1]:g})"


def reading(schedule: ClassifySchedule) -> str:
    """How to read the table, and where a simulation falls short of it."""
    strict = schedule.strict
    sentences = [
        "Nothing left a device through the door `open`.",
        "Figures hold against neighbours, strangers and the coordinator together; a neighbour "
        "knows its own edge; the broker sees who sends to whom, and bodies unless the carrier "
        "seals them.",
        "An edge is that of two devices of one role; edges of devices of two roles have the larger "
        "figure.",
    ]
    if math.isinf(strict.sums_epsilon):
        sentences.append(
            "Sums used true labels: only the noise of the sums protects them, and the symbol's ε "
            "is not the whole promise."
        )
    sentences.append(_over_runs(strict))
    return " ".join([*sentences, *shortcuts(schedule)])


def _over_runs(strict: StrictSettings) -> str:
    """What holds for several runs together."""
    if strict.book is None:
        return "This is per run: several runs add up. With `book`, a label is drawn once for life."
    if math.isinf(strict.sums_epsilon):
        return (
            "The symbol's ε holds for all runs with this book, the largest of all; all else, the "
            "label in the sums included, is per run, and runs add up."
        )
    return (
        "A label has the largest ε of all runs with this book, for all of them together; a changed "
        "label is drawn anew, its ε is added, and that it changed may be seen. All else is per "
        "run, and runs add up."
    )


def caution(schedule: ClassifySchedule, width: int, vote: Vote) -> str:
    """Warnings about noise that drowns the signal; empty where it does not."""
    sentences = []
    noise = schedule.noise(ENCODER)
    if noise is not None and noise.sigma * math.sqrt(width) > schedule.training:
        # A sum of vectors has a norm of at most n · C, its noise one of about σ · C · √width.
        sentences.append(
            f"{schedule.training:,} training devices are too few for {width:,} weights under this "
            "noise; more devices, fewer features or a larger `update_epsilon` would help"
        )
    if schedule.strength < WEAK:
        sentences.append(
            f"at `epsilon={schedule.strict.sums_epsilon:g}` a label of {schedule.classes} classes "
            "is mostly noise; a larger `epsilon` or fewer classes would help"
        )
    if vote.accuracy[1] > WIDE:
        sentences.append(
            f"{schedule.validation:,} validation devices are few: their vote measures accuracy "
            f"with a standard error of {100 * vote.accuracy[1]:.0f} points"
        )
    return "; ".join(sentences)
