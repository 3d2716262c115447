"""The guarantees of a strict run: their tables, how to read them, in plain English, and warnings.

A row is named by its relation: what differs between the two cases that an attacker tries to tell
apart. With an account there are two columns for each one: this run, and all runs with it.

**classify** has one column for each role. Every figure holds against neighbours, non-neighbours and
the coordinator together, as long as no more devices collude than masked sums allow. Over several
runs a device may have had other roles.

- *Label.* Everything depends on the label through the randomized label: pure ε for any two labels.
- *Features.* They enter sums only. With the same randomized label, other features move a vector by
  `Sensitivity.features`. A device without a label adds nothing to any sum.
- *Record.* Other features first, (ε, δ), then another label, pure: ε adds up, δ does not.
- *Contribution to the sums zeroed.* Zeros in place of a device's vectors, with its messages
  unchanged.
- *Device absent.* No guarantee: its neighbours' propagated labels change with it.
- *Edge.* One edge changes the propagated labels of the end that uses it, ε_m each, and vectors in
  the sums after the release. The propagated labels of all others, and all that follows, are
  functions of what was sent. *Replaced at one end*: the two edges may have different users.
- *Degree.* Many edges at once: no useful bound.

**link** has one column for each way out of a device. Features leave it in two ways only: in noisy
sums, with (ε, δ); and in score queries, each of which reveals one of a few score buckets to the
other end. Score buckets are exact unless `query_epsilon` is finite, so the table counts their bits
and has no ε for them. Labels are not used. To predict an edge is to infer it: about edges and
degrees there is no guarantee, only figures of attacks (docs/strict-results.md).

**Warnings** say what limits a run, in one sentence each. They depend on public and noisy numbers
only: settings, numbers of training and validation devices, and opened sums. So real devices can
print them too.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lumos.ldp.account import EDGE, FEATURES, LABEL, NORM, QUESTIONS, RECORD
from lumos.secagg.noise import epsilon_for
from lumos.strict.accounting import AccountView, Disclosed
from lumos.strict.classify.evidence import Selection
from lumos.strict.classify.stages import ENCODER, ClassifySchedule
from lumos.strict.features import SIZES, WINDOW_SHARE, Scaling, significant_count
from lumos.strict.link.levels import ALONE, Reading
from lumos.strict.link.stages import ASSOCIATIONS, LinkSchedule
from lumos.strict.settings import CALIBRATION_BITS, CALIBRATION_QUERIES, StrictSettings
from lumos.strict.stages import Schedule
from lumos.training.guarantees import (
    ABOUT,
    AGAINST,
    CONTRIBUTION_ZEROED,
    DEGREE,
    DEVICE_ABSENT,
    EDGE_ADDED_OR_REMOVED,
    EDGE_REPLACED,
    FEATURES_REPLACED,
    LABEL_REPLACED,
    RECORD_REPLACED,
    TOLD_APART,
    TOLD_APART_FOR_LIFE,
    WEAK,
    is_weak,
    told_apart,
    worst,
)
from lumos.training.guarantees import NO_GUARANTEE as NONE
from lumos.training.split import Role

FOR_LIFE = ", for life"
"""Suffix of the columns that count all runs with a privacy account."""
NEWLY = "newly spent in this run"
"""Row with the amounts that a run adds to an account; in columns for life, with the totals."""
EVERYONE = "everyone who sees every message, every sum and the model"
"""The adversary of a guarantee that covers everything."""


class Cell(NamedTuple):
    """Guarantee in one column of a table."""

    text: str
    told_apart: float | None = None
    """Bound on telling two equally likely alternatives apart; None where there is none."""


class Row(NamedTuple):
    """Guarantee about one relation."""

    cells: tuple[str, ...]
    told_apart: float | None = None
    """Bound on telling two equally likely alternatives apart; None where there is none."""
    against: str = EVERYONE
    """The adversary; empty for a row that counts amounts and guarantees nothing."""

    @staticmethod
    def of(cells: Iterable[Cell]) -> "Row":
        """Return the row of some roles: a device may have any of them, so the worst counts."""
        every = tuple(cells)
        return Row(tuple(cell.text for cell in every), worst(cell.told_apart for cell in every))


def with_life(
    rows: Mapping[str, Row], life: Mapping[str, Row], columns: list[str]
) -> list[dict[str, Any]]:
    """Return the rows of a table: relation, columns of the run, columns for life, and numbers."""
    table = []
    for about, row in rows.items():
        cells: dict[str, Any] = dict(zip(columns, row.cells, strict=True))
        numbers = {TOLD_APART: row.told_apart}
        if life:
            names = [name + FOR_LIFE for name in columns]
            cells |= zip(names, life[about].cells, strict=True)
            numbers[TOLD_APART_FOR_LIFE] = life[about].told_apart
        table.append(
            {
                ABOUT: about,
                **cells,
                **numbers,
                WEAK: is_weak(*numbers.values()),
                AGAINST: row.against,
            }
        )
    return table


def up(number: float) -> str:
    """Format a number with three digits, rounded up: no guarantee is printed too small."""
    if number == 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:g}"  # 1e-9 of the last digit: float dust


# classify: one column for each role.

ROLES = {
    "training devices": Role.TRAIN,
    "validation devices": Role.VALIDATION,
    "other devices": Role.TEST,
}
NO_CHANGE = 0.5
"""Probability of telling two equally likely alternatives apart without seeing anything."""


class _Relation(NamedTuple):
    """The amounts that count for one relation."""

    question: str
    """Question whose μ of sums counts; empty for none."""
    unused: str = ""
    """Cell of a role of which nothing counts."""
    labels: int = 0
    """Number of randomized labels that count."""
    propagated: int = 0
    """Number of devices whose propagated labels count."""
    predicted: int = 0
    """Number of predicted labels that count."""
    changes: int = 1
    """Number of changes by which the sums move."""


_RELATIONS = {
    LABEL_REPLACED: _Relation("", "not used", labels=1),
    FEATURES_REPLACED: _Relation(FEATURES, "they never leave the device", predicted=1),
    RECORD_REPLACED: _Relation(RECORD, "it never leaves the device", labels=1, predicted=1),
    CONTRIBUTION_ZEROED: _Relation(NORM, "no vector in any sum"),
    DEVICE_ABSENT: None,
    EDGE_ADDED_OR_REMOVED: _Relation(EDGE, propagated=1),
    # One edge less and one more; their users may be two devices.
    EDGE_REPLACED: _Relation(EDGE, propagated=2, changes=2),
    DEGREE: None,
}
"""None: there is no guarantee."""
_ROWS = {
    LABEL: LABEL_REPLACED,
    FEATURES: FEATURES_REPLACED,
    RECORD: RECORD_REPLACED,
    NORM: CONTRIBUTION_ZEROED,
    EDGE: EDGE_ADDED_OR_REMOVED,
}
"""By question of the privacy account, the row of the table."""


def classify_guarantees(
    schedule: ClassifySchedule,
    account: AccountView | None = None,
    roles: Sequence[str] = tuple(ROLES),
) -> list[dict[str, Any]]:
    """Return one row per relation, with one column per role; with an account, one for life too.

    Args:
        roles: names of the columns, among `ROLES`.
    """
    run = {name: schedule.disclosed(ROLES[name]) for name in roles}
    rows = _classify_rows(schedule, run)
    if account is None:
        return with_life(rows, {}, list(roles))
    life = _classify_rows(schedule, {name: account.life[name] for name in roles})
    newly = [_spent(schedule, run[name]._replace(label=account.newly[name])) for name in roles]
    rows[NEWLY] = Row(tuple(newly), against="")
    life[NEWLY] = Row(tuple(_spent(schedule, account.life[name]) for name in roles), against="")
    return with_life(rows, life, list(roles))


def _classify_rows(schedule: ClassifySchedule, spent: Mapping[str, Disclosed]) -> dict[str, Row]:
    rows = {}
    for about, relation in _RELATIONS.items():
        nothing = Cell(f"{NONE}: as many edges at once" if about == DEGREE else NONE)
        rows[about] = Row.of(
            nothing if relation is None else _cell(schedule, ROLES[name], amounts, relation)
            for name, amounts in spent.items()
        )
    return rows


def _amounts(spent: Disclosed, relation: _Relation) -> tuple[float, float]:
    """Return ε of messages, and μ of sums."""
    epsilon = relation.labels * spent.label + relation.propagated * spent.propagated_labels
    epsilon += relation.predicted * spent.predicted_labels
    return epsilon, relation.changes * spent.mu[relation.question] if relation.question else 0.0


def planned_epsilons(schedule: ClassifySchedule | LinkSchedule, delta: float) -> dict[str, float]:
    """Return the largest ε of any role in a run, by question; infinite without a guarantee.

    Those of links are by sums: score queries are limited by their number.
    """
    if isinstance(schedule, LinkSchedule):
        mu = schedule.disclosed().mu
        sums = {question: _epsilon(schedule, mu[question], delta) for question in QUESTIONS}
        return {**sums, EDGE: math.inf}
    largest = dict.fromkeys(QUESTIONS, 0.0)
    for role in ROLES.values():
        for question, about in _ROWS.items():
            relation = _RELATIONS[about]
            if relation is not None:
                epsilon, of_sums = _amounts(schedule.disclosed(role), relation)
                if relation.question and schedule.stages_of(role):
                    epsilon += _epsilon(schedule, of_sums, delta)
                largest[question] = max(largest[question], epsilon)
    return largest


def _epsilon(schedule: Schedule, mu: float, delta: float) -> float:
    return epsilon_for(mu, delta) if schedule.noisy else math.inf


def _cell(schedule: ClassifySchedule, role: Role, spent: Disclosed, relation: _Relation) -> Cell:
    """Return ε of messages and (ε, δ) of sums, added up."""
    epsilon, mu = _amounts(spent, relation)
    if relation.question == EDGE and spent.answers:
        return Cell(f"{NONE}: answers about links are about edges")
    account = schedule.account(mu)
    if relation.unused and role == Role.TEST and not mu and not epsilon:
        cell = Cell(relation.unused, NO_CHANGE)
    elif relation.question and not schedule.noisy and schedule.stages_of(role):
        exact = f"{NONE} by the sums: exact sums show single holders"
        cell = Cell(exact + f"; ε = {up(epsilon)} by messages" * (epsilon > 0))
    elif account is None or mu == 0:
        cell = Cell(f"ε = {up(epsilon)}, pure", told_apart(epsilon, mu))
    else:
        cell = Cell(f"({up(epsilon + account[0])}, {account[1]:g})", told_apart(epsilon, mu))
    if not spent.answers or not relation.question:
        return cell
    # Score queries about links have no ε for features.
    return Cell(f"{cell.text}, and {NONE} by {spent.answers} score queries about links")


def _spent(schedule: ClassifySchedule, spent: Disclosed) -> str:
    """Return the amounts that an account counts against its limits, each kind by itself."""
    parts = [f"label ε = {up(spent.label)}"] * (spent.label > 0)
    parts += [f"propagated labels ε = {up(spent.propagated_labels)}"] * (
        spent.propagated_labels > 0
    )
    parts += [f"predicted labels ε = {up(spent.predicted_labels)}"] * (spent.predicted_labels > 0)
    account = schedule.account(spent.mu[RECORD])
    if account is not None and spent.mu[RECORD]:
        parts.append(f"sums ({up(account[0])}, {account[1]:g})")
    parts += [f"{spent.answers} score queries"] * (spent.answers > 0)
    return ", ".join(parts) or "nothing"


# link: one column for each way out of a device.

SUMS, ANSWERS, MESSAGES = "by sums", "by score queries", "by messages to neighbours"


EVERY_SUM = "everyone who sees every sum and the model, but no score query"
"""The adversary of a guarantee that does not cover score queries."""


def link_guarantees(schedule: LinkSchedule, life: Disclosed | None = None) -> list[dict[str, Any]]:
    """Return one row for each relation, with one column for each way out of a device.

    Args:
        life: with an account, the totals of all runs; each column then has one for life beside it.
    """
    columns = [SUMS, ANSWERS, MESSAGES]
    run = schedule.disclosed()
    rows = _link_rows(schedule, run, _answers(schedule))
    rows[LABEL_REPLACED] = Row(("not used",) * 3, told_apart(0.0, 0.0))
    if life is None:
        return with_life(rows, {}, columns)
    most = f"of {schedule.strict.score_queries} " if schedule.strict.score_queries else ""
    given = f"{NONE} beyond their number: {life.answers} {most}so far"
    whole = _link_rows(schedule, life, given)
    label = f"ε = {up(life.label)}, pure, by runs that classify" if life.label else "not used"
    in_sums = _by_sums(schedule, life, LABEL) if life.mu[LABEL] else "not used"
    bound = told_apart(life.label, life.mu[LABEL]) if schedule.noisy else None
    whole[LABEL_REPLACED] = Row((in_sums, "not used", label), bound)
    rows[NEWLY] = Row(
        (
            _by_sums(schedule, run, RECORD),
            f"{run.answers} score queries of calibration",
            f"propagated labels ε = {up(run.propagated_labels)}",
        ),
        against="",
    )
    whole[NEWLY] = Row(
        (
            _by_sums(schedule, life, RECORD),
            given,
            f"propagated labels ε = {up(life.propagated_labels)}",
        ),
        against="",
    )
    return with_life(rows, whole, columns)


def _link_rows(schedule: LinkSchedule, spent: Disclosed, answers: str) -> dict[str, Row]:
    """Return all rows by relation; that about labels is filled in later."""

    def about_features(question: str) -> Row:
        bound = told_apart(0.0, spent.mu[question]) if schedule.noisy else None
        cells = (_by_sums(schedule, spent, question), answers, "not used")
        return Row(cells, bound, EVERY_SUM)

    return {
        FEATURES_REPLACED: about_features(FEATURES),
        CONTRIBUTION_ZEROED: about_features(NORM),
        LABEL_REPLACED: Row(()),
        EDGE_ADDED_OR_REMOVED: Row(
            (
                f"{NONE}: associations depend on it, and a held-back one decides who is matched",
                f"{NONE}: score queries are about edges",
                f"ε = {up(spent.propagated_labels)} by propagated labels of the end that uses it; "
                f"{NONE} by proposals about held-back edges",
            )
        ),
        DEGREE: Row(
            (NONE, f"{NONE}: many queries reveal it", f"{NONE}: neighbours learn much of it")
        ),
        DEVICE_ABSENT: Row((NONE, NONE, NONE)),
    }


def _by_sums(schedule: LinkSchedule, spent: Disclosed, question: str) -> str:
    account = schedule.account(spent.mu[question])
    if account is None:
        return f"{NONE}: exact sums show single holders"
    return f"({up(account[0])}, {account[1]:g})"


def _answers(schedule: LinkSchedule) -> str:
    """Return the bound on what score queries reveal about features to all askers together."""
    strict = schedule.strict
    calibration = CALIBRATION_QUERIES * CALIBRATION_BITS
    if math.isfinite(strict.query_epsilon):
        each = f"ε = {up(strict.query_epsilon)} for each score query"
        if strict.score_queries:
            return f"{each}, {up(strict.score_queries * strict.query_epsilon)} for all of them"
        return f"{each}, any number of them"
    if not strict.score_queries:
        return f"{NONE}: {strict.query_bits} bits for each asker, any number of them"
    bits = calibration + (strict.score_queries - CALIBRATION_QUERIES) * strict.query_bits
    most = f"{bits} bits at most in {strict.score_queries} score queries"
    return f"{NONE} beyond their number: {most}"


# How to read the tables.


def classify_reading(schedule: ClassifySchedule, features: int) -> str:
    """Return how to read the table, what it does not cover, and where a simulation falls short.

    Args:
        features: number of features.
    """
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
    sentences += [summands(schedule, features), _over_runs(strict)]
    return " ".join([*sentences, *control_note(schedule), *shortcuts(schedule)])


def _over_runs(strict: StrictSettings) -> str:
    """Return a sentence on several runs together."""
    if strict.account is None:
        return (
            "This is per run: several runs add up. With `account`, a label is randomized only once."
        )
    return (
        f"{life_of_runs(strict)} A label costs the largest ε of all its draws, for all runs "
        "together; a changed label is drawn anew, its ε is added, and the change may be noticed."
    )


def link_reading(schedule: LinkSchedule, features: int) -> str:
    """Return how to read the table, and where a simulation falls short of it.

    Args:
        features: number of features.
    """
    strict = schedule.strict
    life = "in its life" if strict.account is not None else "in this run"
    sentences = [
        "Nothing left a device through the door `open`, and nothing of its features was released.",
        f"{adversaries(schedule)}; the broker sees who sends to whom, and bodies unless the "
        "transport seals them.",
        public(
            schedule,
            "who takes part; the number of devices; the number of features",
            "the encoder, what is compared, thresholds, and what a score bucket means",
        ),
        "Scores are the observer's, from true data: no figure covers them.",
        f"A device takes part in at most {strict.score_queries} score queries {life}."
        if strict.score_queries
        else "Score queries were not limited: this is for measuring only.",
        "Both ends are assumed to follow the protocol (semi-honest): one that lies about its "
        "vector or its tables learns another function of the other's vector, of the same number of "
        "bits; devices that pool their score queries learn what all of them reveal; nothing keeps "
        "one person from enrolling several devices.",
        summands(schedule, features),
        "Columns add up for whoever sees several.",
        "Sums are per run, and several runs add up."
        if strict.account is None
        else life_of_runs(strict),
    ]
    return " ".join([*sentences, *control_note(schedule), *shortcuts(schedule)])


def adversaries(schedule: Schedule) -> str:
    """Return a sentence on who may collude, and how many devices may be missing."""
    everybody = "Figures hold against neighbours, non-neighbours and the coordinator together"
    if not schedule.noisy:
        return everybody
    updates = schedule.config.updates
    missing = max(updates.dropped, 1 - (updates.minimum or schedule.devices) / schedule.devices)
    return (
        f"{everybody}, with whom up to {100 * updates.corrupt:g} % of the devices collude, while "
        f"{100 * missing:.3g} % add no noise"
    )


MEASURED_LIARS = {
    "demo": (2_000, {1: 2.0, 5: 15.0, 20: 93.8, 100: 93.8}),
    "facebook": (22_470, {1: 0.1, 5: 0.4, 20: 1.4, 100: 6.5}),
}
"""By graph its devices, and points of test accuracy that the worst measured strategy of so many
liars within the bound costs (docs/liars.md)."""


def summands(schedule: Schedule, features: int) -> str:
    """Return sentences on what bounds the summand of a device that lies.

    Args:
        features: number of features, for the widths of sums.
    """
    if not schedule.noisy:
        return "Vectors of exact sums are not clipped: nothing bounds what one device adds."
    if not schedule.strict.proofs:
        return (
            "Devices are assumed to follow the protocol (`--no-proofs`): nothing bounds what one "
            "device adds to a sum, and one that lies can ruin the run."
        )
    largest: dict[str, float] = {}
    for stage, step in schedule.sums:
        clips = stage.proved_bound(step, stage.width(features)) / stage.clip
        largest[stage.name] = max(clips, largest.get(stage.name, 0.0))
    bounded = [
        f"{name} {math.ceil(10 * clips) / 10:g}"
        for name, clips in largest.items()
        if math.isfinite(clips)
    ]
    unbounded = [name for name, clips in largest.items() if math.isinf(clips)]
    rest = f" Nothing bounds summands of {', '.join(unbounded)}." if unbounded else ""
    # n honest vectors at the clip move a sum by at most n clips.
    loose = {name: clips for name, clips in largest.items() if schedule.devices < clips < math.inf}
    if loose:
        named = ", ".join(f"`{name}`" for name in loose)
        rest += (
            f" With {schedule.devices:,} devices this is too loose to help for {named}: the honest "
            "vectors of all devices together move such a sum less."
        )
    return (
        "Each device proves that its summand is short, or is excluded. So one that lies moves a "
        f"sum by at most this multiple of the clipping norm: {', '.join(bounded)}; several liars "
        f"by that much each.{rest} {liars_measured()}"
    )


def liars_measured() -> str:
    """Return what liars within the bound were measured to do."""
    parts = [
        f"{', '.join(map(str, lost))} of {devices:,} devices ({graph}) cost "
        + ", ".join(f"{points:.1f}" for points in lost.values())
        for graph, (devices, lost) in MEASURED_LIARS.items()
    ]
    return (
        "Liars within this bound, at worst, in points of test accuracy (`classify`): "
        f"{'; '.join(parts)}. Nothing is claimed beyond these measurements."
    )


def noise_added(schedule: Schedule, present: int) -> str:
    """Return a sentence on the noise of sums in which so many of the real devices were.

    The figures of the table need the shares of all but the devices that may collude or be missing.
    """
    sentence = f"Of {schedule.devices:,} devices at least {present:,} were in each sum"
    noises = [stage.noise(step) for stage, step in schedule.sums[:1]]
    if noises[0] is None:
        return f"{sentence}, and nobody added noise."
    needed = noises[0].devices - noises[0].absent
    colluding = math.ceil(schedule.config.updates.corrupt * schedule.devices)
    factor = math.sqrt(max(0, present - colluding) / needed)
    return (
        f"{sentence}: its noise was at least {math.floor(100 * factor + 1e-9) / 100:.2f} times "
        f"what these figures need, if {colluding:,} of them colluded and added none."
    )


def public(schedule: Schedule, facts: str, learnt: str) -> str:
    """Return two sentences on what is public."""
    strict = schedule.strict
    known = ["whether any of them is negative"] * (strict.signs == "auto")
    known += ["whether all of them lie between -1 and 1"] * (strict.scaling == "auto")
    form = "".join(f", and {fact}" for fact in known)
    if schedule.first_stages:
        learnt = f"sizes and centres of the features, {learnt}"
    sums = "noisy sums" if schedule.noisy else "exact sums"
    return (
        f"Public, and covered by no figure, are {facts}{form}. Public too are {learnt}: they "
        f"follow from {sums}."
    )


def control_note(schedule: Schedule) -> list[str]:
    """Return a sentence on the control run, if there is one."""
    if not schedule.config.train.control:
        return []
    return [
        "The control run is an experiment of a simulation, with randomness of its own: neither "
        "this table nor any account covers its sums, and publishing its result too would cost as "
        "much again."
    ]


def life_of_runs(strict: StrictSettings) -> str:
    """Return two sentences on the columns for life."""
    return (
        "Columns for life count what is seen in all runs with this account, the largest of any "
        "device that has the role now; a randomized label that is sent again is seen again, and "
        f"costs nothing new. Limits for life are ε = {strict.lifetime_epsilon:g} for labels, "
        f"{strict.lifetime_propagated_epsilon:g} for propagated labels, and "
        f"{strict.lifetime_feature_epsilon:g} for sums."
    )


def shortcuts(schedule: Schedule) -> list[str]:
    """Return a sentence on the shortcuts of a simulation that real devices must not take."""
    train = schedule.config.train
    clear, simulated = train.aggregate == "ideal", train.randomness == "seeded"
    if not clear and not simulated:
        return []
    return [
        "This was a simulation: "
        + "sums were computed in the clear" * clear
        + " and " * (clear and simulated)
        + "randomness comes from the run seed" * simulated
        + ". The table holds for `aggregate='secure'` with `randomness='system'`."
    ]


# Warnings.

WEAK_LABEL = 0.4
"""Strength r of a randomized label below which a run warns."""
WIDE = 0.06
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
    sparse: bool = False
    """True if features are stored sparse: their zeros stay zeros."""
    largest: float = 0.0
    """Mean size of the largest feature in unit rows."""
    alike: float = 0.0
    """Squared norm of the mean sizes of all features in unit rows; 1: all rows are the same."""


def left_out_warnings(stages: Sequence[str]) -> list[str]:
    """Return one warning for each stage that has sums of its own in the list of those left out."""
    return [
        f"{number} {'sum' if number == 1 else 'sums'} of the stage {name!r} left out: honest "
        "devices cannot add up to this, so at least one device lied or is broken"
        for name, number in Counter(stages).items()
    ]


def classify_warnings(schedule: ClassifySchedule, found: Found) -> list[str]:
    """Return all warnings that apply, the most important first."""
    return [
        *_about_features(schedule, found),
        *_about_numbers(schedule, found),
        *_about_neighbours(schedule, found.selection),
    ]


def _about_features(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    keeps_zeros = found.sparse or schedule.strict.signs == "nonnegative"
    bounds = "public bounds (`feature_bounds`) would help"
    remedy = bounds + _or_scaling(schedule, found, "size" if keeps_zeros else "standard")
    if not found.scaled and schedule.first_stages and schedule.noisy:
        yield (
            f"features were not brought to one scale: {schedule.training:,} training devices are "
            f"too few to learn the scales of {found.features:,} features under this noise; public "
            "bounds of the features (`feature_bounds`) need none"
        )
    elif found.largest > DROWNED and found.features > 1:
        yield (
            f"one feature makes up {100 * found.largest**2:.0f} % of a device's features on "
            f"average, so the others hardly count; {remedy}"
        )
    elif found.alike > ALIKE and found.features > 1:
        yield (
            "features of all devices are nearly alike, because of an offset or a few large "
            f"features, so differences hardly count; {bounds if keeps_zeros else remedy}"
        )
    elif not schedule.bounded and not schedule.first_stages:
        yield (
            "features go beyond -1 and 1 and were used as they are; where their scales differ, "
            f"{remedy}"
        )


def _or_scaling(schedule: ClassifySchedule, found: Found, kind: Scaling) -> str:
    """Return when a kind of scaling would help too; nothing where noise would hide the scales."""
    if schedule.first_stages:
        return ""
    noise = replace(schedule, scaling=kind)[SIZES].spread()
    needed = significant_count(noise * math.sqrt(found.features)) / WINDOW_SHARE
    if needed > schedule.training:
        return ""
    return (
        f", and `scaling='{kind}'` if most features are not 0 in {math.ceil(needed):,} or more "
        "training devices"
    )


def _about_numbers(schedule: ClassifySchedule, found: Found) -> Iterator[str]:
    """Warn of noise and of too few devices or labels."""
    noise, error = schedule[ENCODER].noise(), found.selection.accuracy[1]
    # A sum of vectors has a norm of at most n · C, its noise one of about σ · C · √width.
    if noise is not None and noise.sigma * math.sqrt(found.width) > schedule.training:
        yield (
            f"{schedule.training:,} training devices are too few for {found.width:,} weights under "
            "this noise; it depends on the number of features and on `feature_epsilon`"
        )
    if schedule.strength < WEAK_LABEL:
        yield (
            f"at `label_epsilon={schedule.strict.label_epsilon:g}` a label of {schedule.classes} "
            "classes is mostly noise"
        )
    elif schedule.training * schedule.strength**2 < FEW * schedule.classes:
        yield (
            f"few labels: {schedule.training:,} training devices for {schedule.classes} classes at "
            f"`label_epsilon={schedule.strict.label_epsilon:g}`"
        )
    if error > WIDE:
        reason = f"{schedule.validation:,} validation devices are few"
        if schedule.label_form.places > 1:
            reason = f"a label of {schedule.classes} classes is sent as one of its digits"
        yield (
            f"{reason}: model selection measures accuracy with a standard error of "
            f"{100 * error:.0f} points"
        )


def _about_neighbours(schedule: ClassifySchedule, selection: Selection) -> Iterator[str]:
    net, error = selection.gain
    if selection.choice or math.isnan(net):
        return
    points = 100 / max(1, schedule.validation) / schedule.strength
    measured = f"{net * points:+.1f} ± {error * points:.1f} points of accuracy in model selection"
    if net < -MISLED * error:
        yield f"neighbours mislead here ({measured}), so the run predicts by own features alone"
    else:
        yield (
            f"what neighbours add cannot be told from noise ({measured}), so the run predicts by "
            "own features alone"
        )


def link_warnings(schedule: LinkSchedule, read: Reading, tokens: int) -> list[str]:
    """Return why no vector was compared, and a warning where noise drowns the encoder."""
    sentences = []
    noise, width = schedule[ASSOCIATIONS].noise(), tokens * schedule.random_marks
    # A sum of n products has a norm of at most n · C, its noise one of σ · C · √width.
    needed = 0.0 if noise is None else noise.total * math.sqrt(width) / noise.clip
    if needed > schedule.devices:
        sentences.append(
            f"{schedule.devices:,} devices are too few for {tokens:,} tokens under this noise; it "
            "depends on the number of features and on `feature_epsilon`"
        )
    if read.way == ALONE:
        best = max(read.separation, key=lambda way: read.separation[way])
        sentences.append(
            f"pairs are scored by the asker's own degree: score buckets of {best} tell held-back "
            f"edges from non-neighbours with an AUC of {read.separation[best]:.2f} ± "
            f"{read.error[best]:.2f}, which may be chance; so no device is asked"
        )
    return sentences
