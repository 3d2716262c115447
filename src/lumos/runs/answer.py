"""A run in a few sentences: what it scores and what neighbours add, the promise, one advice.

Settings stand in backticks, as in errors; the command line turns them into its options.
"""

from typing import TYPE_CHECKING

from lumos.training.score_errors import beyond_noise

if TYPE_CHECKING:
    from lumos.runs.run import Run


def answer(run: "Run") -> str:
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


def promise(run: "Run") -> str:
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


def advice(run: "Run") -> str:
    """What would help most, or tell more; empty where nothing comes to mind."""
    if run.training.cautions:
        return run.training.cautions[0]
    if run.control is None and run.config.train.coins == "simulated":
        control = run.config.profile.texts(run.config).control
        return f"`control=True` shows what messages contribute: it adds a run with {control}"
    return ""


def split_used(run: "Run") -> str:
    """Where the split comes from, how many train, validate and test, and what validation is for."""
    use = run.config.profile.texts(run.config).validation
    return run.about.split.origin + f". {use}" * bool(use)


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
