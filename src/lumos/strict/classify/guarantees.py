"""Guarantees and warnings of `classify`.

**The table** has one cell for each question and role. Every figure holds against neighbours,
non-neighbours and the coordinator together, as long as no more devices collude than masked sums
allow. Rows are of two kinds: "this or another in its place" and "in the sums or zeros instead".
With a book there are two columns for each role: this run, and all runs with the book, in which a
device may have had other roles.

- *Label.* Everything depends on the label through the randomized label: pure ε for any two labels.
  With `label_epsilon=inf` sums see the label itself: ε of the randomized label, and (ε, δ) of the
  sums.
- *Features.* They enter sums only. With the same randomized label, other features move a vector by
  `Sensitivity.features`. A device without a label adds nothing to any sum.
- *Whole record.* Other features first, (ε, δ), then another label, pure: ε adds up, δ does not.
- *Membership.* Zeros in place of a device's vectors, with its messages unchanged. A device that is
  not there at all has no guarantee: its neighbours' propagated labels change with it.
- *Edge.* One edge changes the propagated labels of its two ends, ε_m each, and their vectors in the
  sums after the release. The propagated labels of others, and all that follows, are functions of
  what was sent.
- *Degree.* Many edges at once: no useful bound.

**Warnings** say what limits a run and what would help, in one sentence each. They depend on public
and noisy numbers only: settings, numbers of training and validation devices, and opened sums. So
real devices can print them too.
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
    adversaries,
    control_note,
    life_of_runs,
    public,
    round_up,
    shortcuts,
    up,
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
    """Return one row per question, with one column per role; with a book, one more for life."""
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
    """Add to a cell the number of score queries about links, which have no ε for features."""
    return cell + f", and {NONE} by {spent.answers} score queries about links" * bool(spent.answers)


def _with_sums(
    schedule: ClassifySchedule,
    role: Role,
    spent: Disclosed,
    question: str,
    epsilon: float = 0.0,
    ends: int = 1,
) -> str:
    """Return ε of messages and (ε, δ) of sums, added up."""
    mu = ends * spent.mu[question]
    if not schedule.noisy and schedule.stages_of(role):
        exact = f"{NONE} by the sums: exact sums show single holders"
        return exact + f"; ε = {up(epsilon)} by messages" * (epsilon > 0)
    account = schedule.account(mu)
    if account is None or mu == 0:
        return f"ε = {up(epsilon)}, pure"
    return f"({up(epsilon + account[0])}, {account[1]:g})"


def _spent(schedule: ClassifySchedule, spent: Disclosed) -> str:
    """Return the amounts that a book counts against its limits, each account by itself."""
    parts = [f"label ε = {up(spent.label)}"] * (spent.label > 0)
    parts += [f"propagated labels ε = {up(spent.propagated_labels)}"] * (
        spent.propagated_labels > 0
    )
    account = schedule.account(spent.mu[RECORD])
    if account is not None and spent.mu[RECORD]:
        parts.append(f"sums ({up(account[0])}, {account[1]:g})")
    parts += [f"{spent.answers} score queries"] * (spent.answers > 0)
    return ", ".join(parts) or NOTHING


def reading(schedule: ClassifySchedule) -> str:
    """Return how to read the table, what it does not cover, and where a simulation falls short."""
    strict = schedule.strict
    sentences = [
        "Nothing left a device through the door `open`.",
        f"{adversaries(schedule)}; a neighbour knows its own edge; the broker sees who sends to "
        "whom, and bodies unless the transport seals them.",
        "The figures of an edge are for two devices of one role; an edge between two roles has the "
        "larger figure.",
        public(
            schedule,
            "who trains, who validates and who has a label; the number of devices; the classes by "
            "number and name; the number of features",
            "weights, matrices, counts and outcome of the model selection, and the temperature",
        ),
        "Scores are the observer's, from true data: no figure covers them.",
    ]
    if math.isinf(strict.sums_epsilon):
        sentences.append(
            "Sums used true labels: only the noise of the sums protects them, and ε of the "
            "randomized label is not the whole guarantee."
        )
    sentences.append(_over_runs(strict))
    return " ".join([*sentences, *control_note(schedule), *shortcuts(schedule)])


def _over_runs(strict: StrictSettings) -> str:
    """Return a sentence on several runs together."""
    if strict.book is None:
        return "This is per run: several runs add up. With `book`, a label is randomized only once."
    return (
        f"{life_of_runs(strict)} A label costs the largest ε of all its draws, for all runs "
        "together; a changed label is drawn anew, its ε is added, and the change may be noticed."
    )


WEAK = 0.4
"""Strength r of a randomized label below which a run warns."""
WIDE = 0.05
"""Standard error of the selected accuracy above which a run warns."""
FEW = 25.0
"""Effective training devices per class below which a run warns: a randomized label of strength r is
worth r² labels."""
MISLED = 2.0
"""Standard errors below zero at which neighbours are said to mislead."""
ALIKE = 0.9
"""Squared norm of the mean of unit rows above which the rows hardly differ."""
DROWNED = 0.7
"""Mean size of one feature in unit rows above which it hides all others."""


class Found(NamedTuple):
    """Results of noisy sums that warnings depend on."""

    features: int
    """Number of features, d."""
    width: int
    """Numbers in an update of the local classifier."""
    selection: Selection
    scaled: bool = True
    """False if sizes of features were needed and could not be learnt."""
    largest: float = 0.0
    """Mean size of the largest feature in unit rows."""
    alike: float = 0.0
    """Squared norm of the mean sizes of all features in unit rows; 1: all rows are the same."""


def warnings(schedule: ClassifySchedule, found: Found) -> list[str]:
    """Return all warnings that apply, the most important first."""
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
            f"one feature makes up {100 * found.largest**2:.0f} % of a device's features on "
            f"average, so the others hardly count; {remedy}"
        )
    elif found.alike > ALIKE and found.features > 1:
        yield (
            "features of all devices are nearly alike, because of an offset or a few large "
            f"features, so differences hardly count; {remedy}"
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
            f"{schedule.validation:,} validation devices are few: model selection measures "
            f"accuracy with a standard error of {100 * error:.0f} points; about {needed:,}, or a "
            "larger `epsilon`, would help"
        )


def _neighbours(schedule: ClassifySchedule, selection: Selection) -> Iterator[str]:
    net, error = selection.gain
    if selection.choice or math.isnan(net):
        return
    points = 100 / max(1, schedule.validation) / schedule.strength
    measured = f"{net * points:+.1f} ± {error * points:.1f} points of accuracy in model selection"
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
