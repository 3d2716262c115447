"""The table of guarantees of `classify`: what is guaranteed about what. No cell claims more.

Every figure holds against everybody at once: neighbours, alone or together, non-neighbours and the
coordinator, with up to as many devices colluding as masked sums allow. Rows answer two questions,
"this or another in its place" and "in the sums or zeros instead"; columns are roles of devices.
With a book there are two columns for each role: what is seen in this run, and in all runs with the
book, in which roles may have been others.

**Label.** Everything is a function of the randomized label: pure ε, any two labels. With
`label_epsilon=inf` sums see the label itself: ε of the randomized label, and the sums' (ε, δ).
**Features.** They are in sums only. For the same randomized label, other features move a vector by
`Reach.features`. A device without a label adds nothing to any sum. **Whole record.** First other
features, (ε, δ), then another label, pure: ε adds up, δ does not. **Membership.** Zeros in place of
a device's vectors, its messages unchanged. For a device that is not there at all there is no
guarantee: its neighbours' propagated labels change with it. **Edge.** One edge changes the
propagated labels of its two ends, ε_m each, and their vectors in the sums after the release. The
propagated labels of others, and all that follows, are functions of what was sent. **Degree.** As
many edges at once: no useful bound.

What a reader of a run of `classify` should know, and what would help: one sentence each.

Every sentence follows from public and noisy numbers: settings, how many devices train and validate,
and opened sums. So real devices can print them too.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lumos.strict.accounting import (
    EDGE,
    FEATURES,
    LABEL,
    NEWLY,
    NONE,
    NORM,
    NOTHING,
    RECORD,
    BookView,
    Disclosed,
    life_of_runs,
    parties,
    public,
    round_up,
    shortcuts,
    up,
    variants,
    with_life,
)
from lumos.strict.classify.evidence import Selection
from lumos.strict.classify.stages import ENCODER, ClassifySchedule
from lumos.strict.features import CLEAR, SIZES, WINDOW
from lumos.strict.settings import StrictSettings
from lumos.training.split import Role

ROLES = {
    "training devices": Role.TRAIN,
    "validation devices": Role.VALIDATION,
    "other devices": Role.TEST,
}
Cell = Callable[[ClassifySchedule, Role, Disclosed], str]


def guarantees(schedule: ClassifySchedule, book: BookView | None = None) -> list[dict[str, str]]:
    """One row for each question, one column for each role; with a book, one more for life."""
    cells: dict[str, Cell] = {
        "label: this one or another": _label,
        "features: these or others": _features_cell,
        "whole record: this or another": _record,
        "label, features, membership: vectors in the sums or zeros, messages unchanged": _presence,
        "membership: there or not there at all": lambda *_: NONE,
        "one edge: there or not": _edge,
        "one edge: this or another at one end": _other_edge,
        "degree": lambda *_: f"{NONE}: as many edges at once",
    }
    rows = {
        about: tuple(cell(schedule, role, schedule.disclosed(role)) for role in ROLES.values())
        for about, cell in cells.items()
    }
    if book is None:
        return with_life(rows, {}, list(ROLES))
    life = {
        about: tuple(cell(schedule, role, book.life[name]) for name, role in ROLES.items())
        for about, cell in cells.items()
    }
    rows[NEWLY] = tuple(
        _spent(schedule, schedule.disclosed(role)._replace(label=book.newly[name]))
        for name, role in ROLES.items()
    )
    life[NEWLY] = tuple(_spent(schedule, book.life[name]) for name in ROLES)
    return with_life(rows, life, list(ROLES))


def _label(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    if role == Role.TEST and not spent.label and not spent.mu[LABEL]:
        return "not used"
    if not math.isinf(schedule.strict.sums_epsilon) and not spent.mu[LABEL]:
        return f"ε = {up(spent.label)}, pure"
    return _with_sums(schedule, role, spent, LABEL, spent.label)


def _features_cell(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    if role == Role.TEST and not spent.mu[FEATURES]:
        return _and_answers("they never leave the device", spent)
    return _and_answers(_with_sums(schedule, role, spent, FEATURES), spent)


def _record(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    if role == Role.TEST and not spent.mu[RECORD] and not spent.label:
        return _and_answers("it never leaves the device", spent)
    return _and_answers(_with_sums(schedule, role, spent, RECORD, spent.label), spent)


def _presence(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    if role == Role.TEST and not spent.mu[NORM]:
        return _and_answers("no vector in any sum", spent)
    return _and_answers(_with_sums(schedule, role, spent, NORM), spent)


def _edge(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    if spent.answers:
        return f"{NONE}: answers about links are about edges"
    return _with_sums(schedule, role, spent, EDGE, 2 * spent.propagated_labels, ends=2)


def _other_edge(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    # One end swaps a neighbour; the old one and the new one lose and gain an edge.
    if spent.answers:
        return f"{NONE}: answers about links are about edges"
    return _with_sums(schedule, role, spent, EDGE, 3 * spent.propagated_labels, ends=4)


def _and_answers(cell: str, spent: Disclosed) -> str:
    """What answers about links tell of features is a number of them, and no ε."""
    return cell + f", and {NONE} by {spent.answers} answers about links" * bool(spent.answers)


def _with_sums(
    schedule: ClassifySchedule,
    role: Role,
    spent: Disclosed,
    question: str,
    epsilon: float = 0.0,
    ends: int = 1,
) -> str:
    """ε of messages and the sums' (ε, δ) together."""
    mu = ends * spent.mu[question]
    if not schedule.noisy and schedule.stages_of(role):
        exact = f"{NONE} by the sums: exact sums show single holders"
        return exact + f"; ε = {up(epsilon)} by messages" * (epsilon > 0)
    account = schedule.account(mu)
    if account is None or mu == 0:
        return f"ε = {up(epsilon)}, pure"
    return f"({up(epsilon + account[0])}, {account[1]:g})"


def _spent(schedule: ClassifySchedule, spent: Disclosed) -> str:
    """Each account by itself: what a book counts against its limits."""
    parts = [f"label ε = {up(spent.label)}"] * (spent.label > 0)
    parts += [f"propagated labels ε = {up(spent.propagated_labels)}"] * (
        spent.propagated_labels > 0
    )
    account = schedule.account(spent.mu[RECORD])
    if account is not None and spent.mu[RECORD]:
        parts.append(f"sums ({up(account[0])}, {account[1]:g})")
    parts += [f"{spent.answers} answers"] * (spent.answers > 0)
    return ", ".join(parts) or NOTHING


def reading(schedule: ClassifySchedule) -> str:
    """How to read the table, what it does not cover, and where a simulation falls short of it."""
    strict = schedule.strict
    sentences = [
        "Nothing left a device through the door `open`.",
        f"{parties(schedule)}; a neighbour knows its own edge; the broker sees who sends to whom, "
        "and bodies unless the transport seals them.",
        "An edge is that of two devices of one role; edges of devices of two roles have the larger "
        "figure.",
        public(
            schedule,
            "who trains, who validates and who has a label; the number of devices; the classes by "
            "number and name; the number of features",
            "weights, matrices, the model selection with its outcome, and the temperature",
        ),
        "Scores are the observer's, from true data: no figure covers them.",
    ]
    if math.isinf(strict.sums_epsilon):
        sentences.append(
            "Sums used true labels: only the noise of the sums protects them, and the randomized "
            "label's ε "
            "is not the whole guarantee."
        )
    sentences.append(_over_runs(strict))
    return " ".join([*sentences, *variants(schedule), *shortcuts(schedule)])


def _over_runs(strict: StrictSettings) -> str:
    """What holds for several runs together."""
    if strict.book is None:
        return "This is per run: several runs add up. With `book`, a label is drawn once for life."
    return (
        f"{life_of_runs(strict)} A label has the largest ε of all its draws, for all runs "
        "together; a changed label is drawn anew, its ε is added, and that it changed may be seen."
    )


WEAK = 0.4
"""Strength r of a randomized label below which a run warns."""
WIDE = 0.05
"""Standard error of the selected accuracy above which a run warns."""
FEW = 25.0
"""Training devices of a class, as many as their randomized labels are worth, below which one warns:
a label of strength r is worth r² labels."""
MISLED = 2.0
"""Standard errors below nothing from which on neighbours are said to mislead."""
ALIKE = 0.9
"""Squared norm of the mean row above which rows of norm 1 hardly differ."""
DROWNED = 0.7
"""Mean size of one feature in rows of norm 1 above which it hides all others."""


class Found(NamedTuple):
    """What a run found out in its noisy sums."""

    features: int
    """d"""
    width: int
    """Numbers in an update of the own encoder."""
    selection: Selection
    scaled: bool = True
    """Whether sizes of features could be learnt, where they had to be."""
    largest: float = 0.0
    """Mean size of the largest feature in rows of norm 1."""
    alike: float = 0.0
    """Squared norm of the mean sizes of all features in such rows; 1: all rows are the same."""


def warnings(schedule: ClassifySchedule, found: Found) -> list[str]:
    """All that apply, the most important first."""
    return [
        *_features(schedule, found),
        *_noise(schedule, found),
        *_labels(schedule),
        *_validation(schedule, found.selection),
        *_neighbours(schedule, found.selection),
    ]


def _features(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    noise = schedule[SIZES].noise() if schedule.first_stages else None
    if not found.scaled and noise is not None:
        # Most of the devices must stand out of the noise of the octaves that they share.
        most = CLEAR * math.sqrt(WINDOW * found.features) * noise.total / 0.75
        yield (
            f"features were not brought to one scale: {schedule.training:,} training devices are "
            f"too few to learn the scales of {found.features:,} features under this noise, about "
            f"{round_up(most):,} would do; public bounds of the features (`feature_bounds`) need "
            "none"
        )
        return
    remedy = "`scaling='standard'` or public bounds (`feature_bounds`) would help"
    if schedule.first_stages:
        remedy = "public bounds (`feature_bounds`) would help"
    if found.largest > DROWNED and found.features > 1:
        yield (
            f"one feature makes up {100 * found.largest**2:.0f} % of a device's features in the "
            f"mean, so the others hardly count; {remedy}"
        )
    elif found.alike > ALIKE and found.features > 1:
        yield (
            "features of all devices are nearly alike, as an offset or a few large features make "
            f"them, so what differs hardly counts; {remedy}"
        )
    elif not schedule.bounded and not schedule.first_stages:
        yield (
            "features go beyond -1 and 1 and were used as they are; where their scales differ, "
            f"{remedy}"
        )


def _noise(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    noise = schedule[ENCODER].noise()
    if noise is None:
        return
    # A sum of vectors has a norm of at most n · C, its noise one of about σ · C · √width.
    needed = noise.sigma * math.sqrt(found.width)
    if needed > schedule.training:
        yield (
            f"{schedule.training:,} training devices are too few for {found.width:,} weights under "
            f"this noise, about {round_up(needed):,} would do; fewer features or a larger "
            "`update_epsilon` would help"
        )


def _labels(schedule: ClassifySchedule) -> Iterator[str]:
    if schedule.strength < WEAK:
        yield (
            f"at `epsilon={schedule.strict.sums_epsilon:g}` a label of {schedule.classes} classes "
            "is mostly noise; a larger `epsilon` or fewer classes would help"
        )
    elif schedule.training * schedule.strength**2 < FEW * schedule.classes:
        needed = round_up(FEW * schedule.classes / schedule.strength**2)
        yield (
            f"few labels: {schedule.training:,} training devices for {schedule.classes} classes, "
            f"about {needed:,} would do; more of them, or a larger `epsilon`, would help"
        )


def _validation(schedule: ClassifySchedule, selection: Selection) -> Iterator[str]:
    error = selection.accuracy[1]
    if error > WIDE:
        needed = round_up(schedule.validation * (error / WIDE) ** 2)
        yield (
            f"{schedule.validation:,} validation devices are few: their model selection measures "
            f"accuracy "
            f"with a standard error of {100 * error:.0f} points; about {needed:,}, or a larger "
            "`epsilon`, would help"
        )


def _neighbours(schedule: ClassifySchedule, selection: Selection) -> Iterator[str]:
    net, error = selection.gain
    if selection.choice or math.isnan(net):
        return
    points = 100 / max(1, schedule.validation) / schedule.strength
    measured = (
        f"{net * points:+.1f} ± {error * points:.1f} points of accuracy in the model selection"
    )
    if net < -MISLED * error:
        yield (
            f"neighbours mislead here ({measured}), so the run predicts by own features alone: "
            "edges seem to join devices of different classes"
        )
    else:
        yield (
            f"what neighbours add cannot be told from noise ({measured}), so the run predicts by "
            "own features alone; more labelled devices or a larger `epsilon` would help, if edges "
            "say anything"
        )
