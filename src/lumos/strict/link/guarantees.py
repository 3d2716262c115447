"""The table of guarantees of `link`: what is guaranteed about what, against whom.

Features leave a device in two ways only: in sums, behind noise, (ε, δ); and in answers, each of
which tells the other end one of a few levels. Answers are exact unless `query_epsilon` says
otherwise, so about them there is a count of bits and no ε. Labels are not used. To predict an edge
is to infer it: about edges and degrees there is no guarantee, only figures of attacks
(docs/strict.md).
"""

import math

from lumos.strict.accounting import (
    FEATURES,
    LABEL,
    NEWLY,
    NONE,
    NORM,
    RECORD,
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
from lumos.strict.link.levels import ALONE, WAYS, Reading
from lumos.strict.link.stages import PRODUCTS, LinkSchedule
from lumos.strict.settings import ANSWERS_OF_CALIBRATION

SUMS, ANSWERS, MESSAGES = "by sums", "by answers", "by messages to neighbours"


def guarantees(schedule: LinkSchedule, life: Disclosed | None = None) -> list[dict[str, str]]:
    """One row for each question, one column for each way out of a device.

    Args:
        life: with a book, what all runs told; each column then has one for life beside it.
    """
    columns = [SUMS, ANSWERS, MESSAGES]
    run = schedule.disclosed()
    rows = _rows(schedule, run, _answers(schedule))
    rows["label"] = ("not used",) * 3
    if life is None:
        return with_life(rows, {}, columns)
    most = f"of {schedule.strict.score_queries} " if schedule.strict.score_queries else ""
    given = f"{NONE} beyond their number: {life.answers} {most}so far"
    whole = _rows(schedule, life, given)
    label = f"ε = {up(life.label)} by runs that classify" if life.label else "not used"
    in_sums = _with_sums(schedule, life, LABEL) if life.mu[LABEL] else "not used"
    whole["label"] = (in_sums, "not used", label)
    rows[NEWLY] = (
        _with_sums(schedule, run, RECORD),
        f"{run.answers} answers of calibration",
        f"propagated labels ε = {up(run.propagated_labels)}",
    )
    whole[NEWLY] = (
        _with_sums(schedule, life, RECORD),
        given,
        f"propagated labels ε = {up(life.propagated_labels)}",
    )
    return with_life(rows, whole, columns)


def _rows(schedule: LinkSchedule, spent: Disclosed, answers: str) -> dict[str, tuple[str, ...]]:
    """By question, the cells of all columns but those about labels."""
    return {
        "features: these or others": (
            _with_sums(schedule, spent, FEATURES),
            answers,
            "not used",
        ),
        "features: in the sums, or all pairs of the device left out": (
            _with_sums(schedule, spent, NORM),
            answers,
            "not used",
        ),
        "label": (),
        "one edge": (
            f"{NONE}: it may change who is matched with whom",
            f"{NONE}: answers are about edges",
            f"ε = {up(2 * spent.propagated_labels)} by propagated labels of both ends; {NONE} by "
            f"proposals",
        ),
        "degree": (NONE, f"{NONE}: many answers tell it", f"{NONE}: neighbours learn much of it"),
        "membership: there or not there at all": (NONE, NONE, NONE),
    }


def _with_sums(schedule: LinkSchedule, spent: Disclosed, question: str) -> str:
    account = schedule.account(spent.mu[question])
    if account is None:
        return f"{NONE}: exact sums show single holders"
    return f"({up(account[0])}, {account[1]:g})"


def _answers(schedule: LinkSchedule) -> str:
    """What answers tell about features, for all askers together."""
    strict = schedule.strict
    calibration = ANSWERS_OF_CALIBRATION * 3
    if math.isfinite(strict.query_epsilon):
        each = f"ε = {up(strict.query_epsilon)} for each answer"
        if strict.score_queries:
            return f"{each}, {up(strict.score_queries * strict.query_epsilon)} for all of them"
        return f"{each}, any number of them"
    if not strict.score_queries:
        return f"{NONE}: {strict.query_bits} bits for each asker, any number of them"
    rest = (strict.score_queries - ANSWERS_OF_CALIBRATION) * strict.query_bits
    return f"{NONE} beyond their number: {calibration + rest} bits at most in {strict.score_queries} answers"


def reading(schedule: LinkSchedule) -> str:
    """How to read the table, and where a simulation falls short of it."""
    strict = schedule.strict
    life = "in its life" if strict.book is not None else "in this run"
    sentences = [
        "Nothing left a device through the door `open`, and nothing of its features was released.",
        f"{parties(schedule)}; the broker sees who sends to whom, and bodies unless the transport "
        "seals them.",
        public(
            schedule,
            "who takes part; the number of devices; the number of features",
            "the encoder, what is compared, thresholds, and what a level means",
        ),
        "Scores are the observer's, from true data: no figure covers them.",
        f"A device gives at most {strict.score_queries} answers {life}."
        if strict.score_queries
        else "There was no limit to answers: this is for measuring only.",
        "Both ends follow the protocol (semi-honest): one that lies about its vector or its tables "
        "learns another function of the other's vector, as many bits of it; a partner that lies "
        "about its words or numbers in products makes its partner's share of the sums larger than "
        "the noise is made for; devices that pool answers learn what all of them tell; nothing "
        "keeps one person from enrolling several devices.",
        "Columns add up for whoever sees several.",
        "Sums are per run, and several runs add up."
        if strict.book is None
        else life_of_runs(strict),
    ]
    return " ".join([*sentences, *variants(schedule), *shortcuts(schedule)])


def warnings(schedule: LinkSchedule, read: Reading, words: int) -> list[str]:
    """Why neither words nor neighbourhood sketch were used, and where noise drowns the encoder."""
    sentences = []
    noise = schedule[PRODUCTS].noise(schedule[PRODUCTS].num_sums - 1)
    width = words * schedule.strict.embedding
    # A sum of n/2 products has a norm of at most n/2 · C, its noise one of σ · C · √width.
    needed = 0.0 if noise is None else 2 * noise.total * math.sqrt(width) / noise.clip
    if needed > schedule.devices:
        sentences.append(
            f"{schedule.devices:,} devices are too few for {words:,} words under this noise, about "
            f"{round_up(needed):,} would do; fewer features or a larger `update_epsilon` would help"
        )
    if read.way == ALONE:
        best = max(WAYS, key=lambda way: read.separation[way])
        sentences.append(
            f"pairs are scored by the asker's own degree: levels of {best} tell held-back edges "
            f"from non-neighbours with an AUC of {read.separation[best]:.2f} ± "
            f"{read.error[best]:.2f}, "
            "which may be chance; so no device is asked"
        )
    return sentences
