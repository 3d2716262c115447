"""A run in a few sentences: what it scores and what neighbours add, the promise, one advice.

Settings stand in backticks, as in errors; the command line turns them into its options.
"""

import math

from lumos.runs.run import Run

Z = 2.0
"""Standard errors that a difference must exceed to be more than the noise of the test set."""


def answer(run: Run) -> str:
    """One sentence, with the scores of the run and of own features, and what the difference says.

    A difference is called noise below two standard errors of two independent scores on a test set
    of this size. The arms share their test set, so this is cautious.
    """
    classify = run.config.train.task == "classify"
    what, tested = ("accuracy" if classify else "auc"), run.training.split.test
    score = run.metrics[f"test_{what}"]
    name = run.about.graph or "this graph"
    if classify:
        sentence = f"On {name}, {_share(score)} of {tested:,} test devices are classified rightly"
    else:
        sentence = (
            f"On {name}, {_share(score)} of comparisons of a test edge with a pair of strangers "
            f"come out right (ROC-AUC, {tested:,} edges)"
        )
    parts = [sentence]
    texts = run.config.profile.texts(run.config)
    if run.own is not None:
        own = run.own[f"test_{what}"]
        alone = "with own features alone" if classify else f"by {texts.own}"
        parts.append(f"{alone} {_share(own)}, {_added(score, own, tested, what)}")
    if run.control is not None:
        control = run.control[f"test_{what}"]
        parts.append(_against_control(score, control, texts.control, tested, what))
    return "; ".join(parts) + "."


def promise(run: Run) -> str:
    """The whole promise in plain words, or what is not protected; and whether it is simulated."""
    train = run.config.train
    words = run.config.profile.texts(run.config).promise(run.promises)
    real = {"aggregate": "secure", "coins": "system"}
    needed = [
        f"`{name}='{value}'`" for name, value in real.items() if getattr(train, name) != value
    ]
    if not needed:
        return words
    needs = f"; the promise needs {' and '.join(needed)}" if run.promises else ""
    return f"{words} This was a simulation{needs}."


def advice(run: Run) -> str:
    """What would help most, or tell more; empty where nothing comes to mind."""
    if run.training.cautions:
        return run.training.cautions[0]
    if run.control is None and run.config.train.coins == "simulated":
        control = run.config.profile.texts(run.config).control
        return f"`control=True` shows what messages contribute: it adds a run with {control}"
    return ""


def split_used(run: Run) -> str:
    """How many devices or edges train, validate and test."""
    split = run.training.split
    kind = "devices" if run.config.train.task == "classify" else "edges"
    return f"{split.train:,} {kind} train, {split.validation:,} validate, {split.test:,} test"


def standard_error(score: float, tested: int, what: str) -> float:
    """Of an accuracy: √(p(1-p)/n). Of an AUC with n edges and n strangers: Hanley and McNeil.

    Q₁ = A/(2-A), Q₂ = 2A²/(1+A), variance (A(1-A) + (n-1)(Q₁ - A² + Q₂ - A²)) / n².
    """
    if not tested:
        return math.inf
    if what == "accuracy":
        return math.sqrt(score * (1 - score) / tested)
    first, second, square = score / (2 - score), 2 * score**2 / (1 + score), score**2
    pairs = (tested - 1) * (first - square + second - square)
    return math.sqrt(max(score * (1 - score) + pairs, 0.0)) / tested


def beyond_noise(one: float, other: float, tested: int, what: str) -> bool:
    """Whether two scores on a test set of this size differ by more than its noise."""
    errors = (standard_error(score, tested, what) for score in (one, other))
    return abs(one - other) > Z * math.hypot(*errors)


def _added(score: float, own: float, tested: int, what: str) -> str:
    """What the difference to own features says."""
    points = 100 * (score - own)
    who = "neighbours" if what == "accuracy" else "messages"
    if score == own:
        return f"so {who} add nothing"
    if not beyond_noise(score, own, tested, what):
        return f"so {who} add {points:+.1f} points, within the noise of so small a test set"
    return f"so {who} {'add' if points > 0 else 'cost'} {abs(points):.1f} points"


def _against_control(score: float, control: float, of: str, tested: int, what: str) -> str:
    """What a control reaches, and whether the run tells more."""
    more = beyond_noise(score, control, tested, what) and score > control
    verdict = "" if more else ", so messages tell nothing that shows here"
    return f"a control with {of} reaches {_share(control)}{verdict}"


def _share(score: float) -> str:
    return f"{100 * score:.1f} %"
