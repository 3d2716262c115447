"""The table of promises of `classify`: what is guaranteed about what. No cell claims more.

Every figure holds against everybody at once: neighbours, alone or together, strangers and the
coordinator, with up to as many devices colluding as masked sums allow. Rows answer two questions,
"this or another in its place" and "in the sums or zeros instead"; columns are roles of devices.
With a book there are two columns for each role: what is seen in this run, and in all runs with the
book, in which roles may have been others.

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
from collections.abc import Callable

from lumos.strict.book_charges import EDGE, FEATURES, LABEL, NORM, RECORD
from lumos.strict.classify.stages import ClassifySchedule
from lumos.strict.disclosed import NEWLY, BookView, Disclosed, with_life
from lumos.strict.settings import StrictSettings
from lumos.strict.wording import NONE, NOTHING, arms, life_of_runs, parties, public, shortcuts, up
from lumos.training.split import Role

ROLES = {
    "training devices": Role.TRAIN,
    "validation devices": Role.VALIDATION,
    "other devices": Role.TEST,
}
Cell = Callable[[ClassifySchedule, Role, Disclosed], str]


def promises(schedule: ClassifySchedule, book: BookView | None = None) -> list[dict[str, str]]:
    """One row for each question, one column for each role; with a book, one more for life."""
    cells: dict[str, Cell] = {
        "label: this one or another": _label,
        "features: these or others": _features,
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


def _features(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
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
    return _with_sums(schedule, role, spent, EDGE, 2 * spent.opinions, ends=2)


def _other_edge(schedule: ClassifySchedule, role: Role, spent: Disclosed) -> str:
    # One end swaps a neighbour; the old one and the new one lose and gain an edge.
    if spent.answers:
        return f"{NONE}: answers about links are about edges"
    return _with_sums(schedule, role, spent, EDGE, 3 * spent.opinions, ends=4)


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
    parts += [f"opinions ε = {up(spent.opinions)}"] * (spent.opinions > 0)
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
        "and bodies unless the carrier seals them.",
        "An edge is that of two devices of one role; edges of devices of two roles have the larger "
        "figure.",
        public(
            schedule,
            "who trains, who validates and who has a label; the number of devices; the classes by "
            "number and name; the number of features",
            "weights, matrices, the vote with its outcome, and the temperature",
        ),
        "Scores are the observer's, from true data: no figure covers them.",
    ]
    if math.isinf(strict.sums_epsilon):
        sentences.append(
            "Sums used true labels: only the noise of the sums protects them, and the symbol's ε "
            "is not the whole promise."
        )
    sentences.append(_over_runs(strict))
    return " ".join([*sentences, *arms(schedule), *shortcuts(schedule)])


def _over_runs(strict: StrictSettings) -> str:
    """What holds for several runs together."""
    if strict.book is None:
        return "This is per run: several runs add up. With `book`, a label is drawn once for life."
    return (
        f"{life_of_runs(strict)} A label has the largest ε of all its draws, for all runs "
        "together; a changed label is drawn anew, its ε is added, and that it changed may be seen."
    )
