"""The summary of a run in plain words. No sentence claims more than the run measured."""

import math

from lumos.exchange.topic import Door
from lumos.report.page import Fact, Facts
from lumos.report.record import Record

ARMS = {
    "run": "this run",
    "own": "own features only, no neighbour",
    "ids": "colours alone, no symbol",
    "control": "control: releases that say nothing",
}
_NETWORKS = {"gcn": "a graph convolutional network (GCN)", "gat": "a graph attention network (GAT)"}


def title(record: Record) -> str:
    """Heading of the page."""
    return f"Lumos on {record.result.graph or 'a graph without a name'}"


def subtitle(record: Record) -> str:
    """The run in one line."""
    result = record.result
    task = "link prediction" if record.link else "label classification"
    noise = (
        "no noise (ε = inf)"
        if result.epsilon == "inf"
        else f"ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{result.epsilon:g}"
    )
    return " · ".join(
        [task, f"profile {result.profile}", result.backbone, noise, f"seed {result.seed}"]
    )


def summary(record: Record) -> list[str | Facts]:
    """What a stranger reads first."""
    return [trained(record), scored(record), facts(record), *compared(record), how(record)]


def trained(record: Record) -> str:
    """What was trained, by whom, for what."""
    result = record.result
    network = _NETWORKS.get(result.backbone, f"a graph neural network ({result.backbone})")
    if record.link:
        goal = "to predict which of them are linked"
    else:
        goal = f"to tell which of {len(record.about.classes):,} classes a device belongs to"
    holds = "features" if record.link else "features, its own label"
    return (
        f"{result.devices:,} simulated devices trained {network} together, {goal}. Each device is "
        f"one vertex of a graph with {result.edges:,} edges: it holds its own {holds} and "
        "the list of its neighbours. Whatever else it learns came in the messages counted below."
    )


def scored(record: Record) -> str:
    """The score, and what it was measured on."""
    score = shown(record.scores["run"]["test"], record)
    split = record.result.split
    if record.link:
        among = f"{split.test:,} edges" if split else "edges"
        return (
            f"Of {among} that were held back, and as many pairs that are none, it puts an edge "
            f"before another pair with probability {score} (ROC-AUC; 0.5 is guessing, 1 perfect)."
        )
    among = f"{split.test:,} test devices" if split else "the test devices"
    return f"On {among}, whose labels training did not use, it is right in {score} of the cases."


def facts(record: Record) -> Facts:
    """The scores side by side."""
    what = "ROC-AUC" if record.link else "test accuracy"
    notes = {
        "run": f"{what}, neighbours' messages included",
        "own": "the same training without any neighbour",
        "ids": "neighbours in common alone, by random marks that many devices share",
        "control": "the same run, but neighbours' releases carry no information",
    }
    names = {"run": "This run", "own": "Own features only", "control": "Control"}
    names["ids"] = "Colours alone"
    return Facts(
        [
            Fact(shown(scores["test"], record), names[arm], notes[arm], strong=arm == "run")
            for arm, scores in record.scores.items()
        ]
    )


def compared(record: Record) -> list[str]:
    """What the score is worth against own features and the control, and how sure that is."""
    found = []
    differences = [
        distance(record, arm, name)
        for arm, name in (("own", "own features only"), ("control", "the control"))
        if arm in record.scores
    ]
    if differences:
        found.append(f"This run is {' and '.join(differences)}. {verdict(record)}".strip())
    missing = []
    if "own" not in record.scores:
        missing.append("A run on own features only (`--floor`) is not part of this one.")
    if "control" not in record.scores:
        missing.append(
            "No control was run (`--control`), so this page cannot say how much of the score is "
            "owed to what neighbours released."
        )
    found += [" ".join(missing)] * bool(missing)
    found.append(
        f"All of this is one run with one seed ({record.result.seed}); other seeds give other "
        "figures."
    )
    return [" ".join(found)]


def verdict(record: Record) -> str:
    """What the control says, as far as the size of the test set allows."""
    if "control" not in record.scores:
        return ""
    run, control = record.scores["run"]["test"], record.scores["control"]["test"]
    both = math.hypot(deviation(record, run), deviation(record, control))
    if not math.isfinite(both):
        return ""
    said = (
        "The control differs from this run in its coins, and in that neighbours' releases say "
        "nothing. "
    )
    if run - control > 2 * both:
        return said + (
            "The difference is larger than the choice of the test set explains: the releases seem "
            "to have helped."
        )
    if control - run > 2 * both:
        return f"{said}The control is better: here the releases seem to have done harm."
    said += (
        "A difference this small can be the choice of the test set, so this run does not show "
        "that the releases helped."
    )
    own = record.scores.get("own", {}).get("test")
    if own is not None and min(run, control) - own > 2 * math.hypot(both, deviation(record, own)):
        said += " What both have above own features does not come from what the releases say."
    return said


def how(record: Record) -> str:
    """What left the devices, and what of it a simulation does not do."""
    result = record.result
    opened, released = messages(record, Door.OPEN), messages(record, Door.RELEASE)
    if opened:
        said = (
            f"Privacy: this is the paper's own design. {opened:,} messages left devices through "
            "the door `open`, without any protection; what they give away is listed below."
        )
    else:
        said = "Privacy: nothing left a device through the door `open`, which protects nothing."
    if released:
        said += (
            f" {released:,} messages were releases with noise "
            f"(ε = {result.ledger.epsilon_per_receiver:g} towards one receiver, "
            f"{result.ledger.epsilon_collusion:,g} if all receivers of a device collude)."
        )
    if record.strict:
        said += " What is promised to whom, and where nothing is promised, is in a table below."
    shortcuts = []
    if result.aggregate == "ideal":
        shortcuts.append("sums were computed in the clear")
    if result.compare == "ideal" and result.tree_ledger.comparisons:
        shortcuts.append("comparisons were computed in the clear")
    if result.coins == "simulated":
        shortcuts.append("random coins came from the seed, so that the run can be repeated")
    if shortcuts:
        said += f" In this simulation {_listed(shortcuts)}; real devices must not do that."
    return said


def shown(score: float, record: Record) -> str:
    """A score as people write it."""
    return f"{score:.4f}" if record.link else f"{100 * score:.2f}\N{NO-BREAK SPACE}%"


def distance(record: Record, arm: str, name: str) -> str:
    """How far this run is from another, in words."""
    apart = record.scores["run"]["test"] - record.scores[arm]["test"]
    if round(apart, 4) == 0:
        return f"level with {name}"
    size = f"{abs(apart):.4f}" if record.link else f"{100 * abs(apart):.2f} points"
    return f"{size} {'above' if apart > 0 else 'below'} {name}"


def deviation(record: Record, score: float) -> float:
    """Standard deviation of a score over the choice of the test set; NaN if its size is unknown.

    Accuracy: of a share, √(p(1 − p)/n). ROC-AUC: Hanley and McNeil's, with n pairs of each kind.
    """
    count = record.result.split.test if record.result.split else 0
    if count < 1:
        return math.nan
    if not record.link:
        return math.sqrt(score * (1 - score) / count)
    one, two = score / (2 - score), 2 * score**2 / (1 + score)
    square = score * (1 - score) + (count - 1) * (one + two - 2 * score**2)
    return math.sqrt(max(square, 0.0)) / count


def messages(record: Record, door: Door) -> int:
    """Messages that passed a door, before and in training."""
    ledgers = (record.result.tree_ledger, record.result.ledger)
    lines = [line for ledger in ledgers for line in ledger.topics.values()]
    return sum(line.messages for line in lines if line.door == door)


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
