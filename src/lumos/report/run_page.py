"""The page of one run, made from a `lumos.Run` alone, and its summary in plain words."""

import math
from pathlib import Path

from lumos.exchange.messages import Door
from lumos.report.page import Block, Fact, Facts, Page, Table
from lumos.report.run_scores import (
    classes_section,
    cost_section,
    deviation,
    format_score,
    predicts_links,
    score_of,
    scores_section,
    training_section,
    variants,
)
from lumos.report.sections import (
    audit_section,
    messages_section,
    protection_section,
    rerun_section,
    settings_section,
    trees_section,
)
from lumos.runs.run import Run
from lumos.runs.text import estimate_texts, guarantee
from lumos.training.guarantees import guarantees_something
from lumos.training.trainer import CONTROL, MAIN, OWN

_NETWORKS = {"gcn": "a graph convolutional network (GCN)", "gat": "a graph attention network (GAT)"}


_SECTIONS = (
    scores_section,
    classes_section,
    training_section,
    messages_section,
    protection_section,
    audit_section,
    trees_section,
    cost_section,
    settings_section,
    rerun_section,
)


def write_page(run: Run, path: Path) -> Path:
    """Write the page of a run to a file, and return its path.

    Raises:
        UsageError: the file cannot be written.
    """
    return page_of(run).write(path)


def page_of(run: Run) -> Page:
    """Return the page of a run; without trees, classes or an audit it has no section of them."""
    name = run.about.graph.strip() or "a graph in memory"
    sections = [make(run) for make in _SECTIONS]
    return Page(
        title=f"Lumos on {name}",
        subtitle=_subtitle(run),
        summary=[
            _setup(run),
            _score_sentence(run),
            _score_facts(run),
            _comparison(run),
            *_privacy(run),
        ],
        sections=[section for section in sections if section is not None],
    )


def _subtitle(run: Run) -> str:
    """Return the run in one line."""
    config = run.config
    task = "link prediction" if predicts_links(run) else "label classification"
    epsilon = config.profile_settings.epsilon
    noise = config.profile.texts(config).budget or (
        "no noise (ε = inf)"
        if math.isinf(epsilon)
        else f"ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{epsilon:g}"
    )
    network = [config.model.network] * _has_network(run)
    profile = f"profile {config.train.profile}"
    return " · ".join([task, profile, *network, noise, f"seed {run.about.seed}"])


def _setup(run: Run) -> str:
    """Return what was trained, by whom, for what."""
    backbone = run.config.model.network
    network = _NETWORKS.get(backbone, f"a graph neural network ({backbone})")
    if not _has_network(run):
        network = "an encoder of their features" if predicts_links(run) else "a classifier"
    if predicts_links(run):
        goal, holds = "to predict which of them are linked", "features"
    else:
        goal = f"to predict which of {len(run.class_names):,} classes a device belongs to"
        holds = "features, its own label"
    kind, vertex = "simulated", f"a graph with {run.about.edges or 0:,} edges"
    if run.about.deployed:
        kind, vertex = "real", "a graph that nobody sees as a whole"
    return (
        f"{run.about.devices:,} {kind} devices trained {network} together, {goal}. Each device "
        f"is one vertex of {vertex}: it holds its own {holds} and "
        "the list of its neighbours. Whatever else it learns came in the messages counted below."
    )


def _scores_pairs(run: Run) -> bool:
    """Return True if devices answered each other by buckets of scores."""
    return run.ledger.scores > 0


def _own(run: Run) -> str:
    """Return the name of the variant `own` in a sentence."""
    name = run.config.profile.texts(run.config).own.split(" (")[0]
    return name if name.startswith("the ") else f"the {name}"


def _has_network(run: Run) -> bool:
    """Return whether the run trained a graph neural network: some profiles do so by choice."""
    return not run.config.profile.ignores("output", run.config)


def _score_sentence(run: Run) -> str:
    """Return the score, and what it was measured on."""
    if not run.scores:
        return (
            "Nobody knows how accurate it is. What follows is estimated by noisy sums of "
            f"{'all' if predicts_links(run) else f'{run.split_sizes.validation:,} validation'} "
            "devices, ± its standard error."
        )
    score, count = format_score(run, score_of(run)), run.split_sizes.test
    if predicts_links(run):
        return (
            f"Test ROC-AUC {score}, on {count:,} edges that were held back and as many pairs "
            "without an edge: the probability that an edge scores higher than another pair (0.5 is "
            "chance)."
        )
    return f"Test accuracy {score}, on {count:,} devices whose labels training did not use."


def _score_facts(run: Run) -> Facts:
    """Return the scores side by side."""
    if not run.scores:
        return Facts(
            [
                Fact(text, name, "as its devices estimate it", strong=not place)
                for place, (name, text) in enumerate(estimate_texts(run.model.estimates).items())
            ]
        )
    metric = "ROC-AUC" if predicts_links(run) else "test accuracy"
    names = {
        MAIN: ("This run", f"{metric}, neighbours' messages included"),
        OWN: ("Local model", "the same training without any neighbour"),
        CONTROL: ("Control", "the same run, but neighbours' releases carry no information"),
    }
    if _scores_pairs(run):
        texts = run.config.profile.texts(run.config)
        names = {
            MAIN: ("This run", f"{metric}, with answers within the budgets"),
            OWN: ("Alone", f"{texts.own}, no answers"),
            CONTROL: ("Control", f"the same run with {texts.control}"),
        }
    return Facts(
        [
            Fact(format_score(run, score_of(run, variant)), *names[variant], strong=variant == MAIN)
            for variant in variants(run)
        ]
    )


def _comparison(run: Run) -> str:
    """Return the comparison with the local model and the control, and its certainty."""
    if not run.scores:
        return (
            "This page is made from the coordinator's folder: weights, sums and the messages that "
            "passed the coordinator, and nothing of a single device."
        )
    sentences = []
    differences = [
        _difference(run, variant, name)
        for variant, name in ((OWN, _own(run)), (CONTROL, "the control"))
        if variant in run.scores
    ]
    if differences:
        sentences += [f"This run is {' and '.join(differences)}.", verdict(run)]
    if run.own is None:
        sentences.append("The local model (`floor`) is not part of this run.")
    if run.control is None and not _scores_pairs(run):
        sentences.append(_no_control("what neighbours released"))
    elif run.control is None:
        sentences.append(_no_control("what devices compare"))
    sentences.append(
        f"All of this is one run with one seed ({run.about.seed}); other seeds give other figures."
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _no_control(cause: str) -> str:
    return (
        "No control was run, so this page cannot say how much of the score is owed to "
        f"{cause}; --control, or `control=True` in Python, trains one beside the run."
    )


def verdict(run: Run) -> str:
    """Return what the control shows, as far as the test set allows; empty without one."""
    if run.control is None:
        return ""
    score, control = score_of(run), score_of(run, CONTROL)
    spread = math.hypot(deviation(run, score), deviation(run, control))
    if not math.isfinite(spread):
        return ""
    text = (
        "The control is the same run with other randomness and with releases that carry no "
        "information. "
    )
    what = "the releases"
    if _scores_pairs(run):
        texts = run.config.profile.texts(run.config)
        text = f"The control is the same run with other randomness and {texts.control}. "
        what = "features and neighbourhood sketches"
    if score - control > 2 * spread:
        return text + (
            f"The difference is larger than the choice of the test set explains: {what} "
            "seem to have helped."
        )
    if control - score > 2 * spread:
        return f"{text}The control is better: here {what} seem to have done harm."
    text += (
        "A difference this small can be the choice of the test set, so this run does not show "
        f"that {what} helped."
    )
    if run.own is not None:
        own = score_of(run, OWN)
        if min(score, control) - own > 2 * math.hypot(spread, deviation(run, own)):
            text += f" What both gain over {_own(run)} does not come from {what}."
    return text


def _difference(run: Run, variant: str, name: str) -> str:
    """Return how far this run is from another variant, in words."""
    gap = score_of(run) - score_of(run, variant)
    if round(gap, 4) == 0:
        return f"level with {name}"
    size = f"{abs(gap):.4f}" if predicts_links(run) else f"{100 * abs(gap):.2f} points"
    return f"{size} {'above' if gap > 0 else 'below'} {name}"


def _privacy(run: Run) -> list[str | Block]:
    """Return what left the devices, the guarantee, and the shortcuts of the simulation."""
    opened, released = _messages(run, Door.OPEN), _messages(run, Door.RELEASE)
    sentences = ["Privacy: nothing left a device through the door `open`, which protects nothing."]
    if opened:
        design = run.config.profile.texts(run.config).design
        sentences = [
            f"Privacy: {design}".strip(),
            f"{opened:,} messages left devices through the door `open`, without any protection; "
            "what they give away is listed below.",
        ]
    if released and not run.ledger.epsilon_collusion:
        sentences.append(
            f"{released:,} messages were releases that depend on no features and no label "
            f"(ε = {run.ledger.edge_epsilon:g} on the edges of a device)."
        )
    elif released:
        sentences.append(
            f"{released:,} messages were releases with noise "
            f"(ε = {run.ledger.epsilon_per_receiver:g} towards one receiver, "
            f"{run.ledger.epsilon_collusion:,g} if all receivers of a device collude)."
        )
    if _scores_pairs(run):
        sentences.append(
            f"{run.ledger.scores:,} pairs learnt the bucket of their score in training: "
            f"{run.ledger.comparison_bits:,.0f} bits, counted at both ends."
        )
    closing = []
    if shortcuts := _shortcuts(run):
        closing.append(
            f"In this simulation {_enumerated(shortcuts)}; real devices must not do that."
        )
    if not guarantees_something(run.guarantees):
        return [" ".join(sentences + closing)]
    lines = guarantee(run)
    rows = [[title, text] for title, text in lines if title]
    about = " ".join(text for title, text in lines if not title)
    short = Table(["", "guarantee"], rows, "The guarantee in short", stacked=True)
    return [" ".join(sentences), short, " ".join([about, *closing])]


def _messages(run: Run, door: Door) -> int:
    """Return the number of messages that passed a door, before and in training."""
    topics = [*run.trees.ledger.topics.values(), *run.ledger.topics.values()]
    return sum(topic.messages for topic in topics if topic.door == door)


def _shortcuts(run: Run) -> list[str]:
    """Return what the simulation did that real devices must not do."""
    train = run.config.train
    compared = run.trees.compare == "ideal" and run.trees.ledger.comparisons > 0
    shortcuts = {
        "sums were computed in the clear": train.aggregate == "ideal" and not _scores_pairs(run),
        "sums and scores were computed in the clear": (
            train.aggregate == "ideal" and _scores_pairs(run)
        ),
        "comparisons were computed in the clear": compared,
        "randomness came from the seed, so that the run can be repeated": (
            train.randomness == "seeded"
        ),
    }
    return [words for words, taken in shortcuts.items() if taken]


def _enumerated(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
