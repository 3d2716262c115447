"""The whole paper on the embedded graph, and the strict profile beside it: `make demo`."""

import argparse
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import lumos
from lumos.evaluation.result import protection_of

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("graph", nargs="?", default="demo", help="as `lumos train` takes it")
parser.add_argument("--epochs", type=int, default=300, help="of the paper's training")
parser.add_argument("--steps", type=int, default=300, help="of MCMC")
asked = parser.parse_args()
MCMC: dict[str, Any] = {"balancer": "mcmc", "iterations": asked.steps}
PAPER: dict[str, Any] = {"profile": "paper", "epochs": asked.epochs, **MCMC}
LITERAL: dict[str, Any] = {**PAPER, "literal": True}
LINKS: dict[str, Any] = {"task": "link", "compare": "ideal"}
console = Console(width=80, highlight=False)
start = time.perf_counter()


def part(title: str, text: str) -> None:
    """Begin a part: what it shows, and the section of the paper."""
    console.print(f"\n[bold]{title}[/bold]")
    console.print(text)


def figures(*columns: str) -> Table:
    """Return an empty table: text in the first column, figures in the others."""
    table = Table(columns[0], box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def item(text: str) -> None:
    """Print an item of a list."""
    row = Table.grid(padding=(0, 1))
    row.add_row(" -", text)
    console.print(row)


def score(run: lumos.Run, variant: str = "run") -> str:
    """Return the test score of a variant: accuracy in per cent, or ROC-AUC for links."""
    scores = run.scores[variant]
    if "test_auc" in scores:
        return f"{scores['test_auc']:.3f}"
    return f"{100 * scores['test_accuracy']:.1f} %"


def train(title: str, **settings: Any) -> lumos.Run:
    """Train a model, its control and the local model; print their scores."""
    with console.status(title):
        run = lumos.train(graph, control=True, **settings)
    item(f"{title}: {score(run)}, control {score(run, 'control')}, local {score(run, 'own')}")
    return run


def unprotected(run: lumos.Run) -> list[tuple[int, str]]:
    """Return the kinds of unprotected messages: their number, and what receivers learn."""
    topics = run.ledger.topics.values()
    return [(topic.messages, topic.learns) for topic in topics if topic.door == "open"]


def protected(run: lumos.Run) -> str:
    """Return what a run protects, in numbers."""
    ledger, messages = run.ledger, sum(number for number, _ in unprotected(run))
    if not messages:
        return protection_of(run.summary())
    return (
        f"LDP features: ε = {ledger.epsilon_per_receiver:g} for one receiver, "
        f"{ledger.epsilon_collusion:.3g} if all collude; {messages:,} other messages: no guarantee"
    )


graph = lumos.load(asked.graph)
console.print(
    f"[bold]Lumos on {asked.graph}: {graph.devices:,} devices, {graph.edges:,} edges, "
    f"{graph.feature_count} features, {graph.class_count} classes[/bold]"
)
console.print(
    "Every vertex is a device that knows its own features, its own label and its "
    "neighbours. All devices are simulated on this machine; their messages, noise and counts "
    "are those of real ones. On demo all of it takes about a minute on two idle cores."
)

part(
    "1. Trees: who owns which edge (paper, section V)",
    "At least one end of every edge owns it. A device's workload is the number of edges that "
    "it owns, and the busiest device sets the pace. Devices compare in secret, by two-party "
    "cryptography: they learn the answer and not each other's numbers.",
)
trees: dict[str, lumos.Balanced] = {}
table = figures("", "largest workload", "comparisons", "seconds")
for balancer, words in {
    "none": "every device owns all its edges",
    "greedy": "greedy (Algorithm 1)",
    "mcmc": f"MCMC, {asked.steps:,} steps (Algorithms 1-3)",
    "optimal": "optimal (not in the paper)",
}.items():
    chosen = MCMC if balancer == "mcmc" else {"balancer": balancer}
    with console.status(words):
        made = trees[balancer] = lumos.balance(graph, lumos.TreeSettings(**chosen))
    compared = f"{made.ledger.comparisons:,}"
    table.add_row(words, f"{made.max_workload}", compared, f"{made.seconds:.1f}")
console.print(table)
console.print(
    f"It is proven that no assignment has less than {trees['optimal'].lower_bound()}. The answers "
    f"of MCMC tell a device up to {trees['mcmc'].ledger.bits_per_pair_largest:.0f} bits about the "
    "degree and the workloads of another."
)

part(
    "2. Classification as in the paper (sections VI-A to VI-C)",
    "Devices send their neighbours LDP features once (ε = 2) and train a GCN on the trees of "
    f"MCMC, {asked.epochs} epochs. The control sends features without information: where it "
    "does as well, LDP features add nothing. The local model has no neighbours. Test accuracy:",
)
literal = train("literal, as printed", trees=trees["mcmc"], **LITERAL)
corrected = train("corrected, noise shrunk", trees=trees["mcmc"], **PAPER)

part(
    "3. Link prediction as in the paper (section VI-C)",
    "The same on 80 % of the edges; trees by the same comparisons, here in the clear. Test ROC-AUC "
    "(0.5 is chance):",
)
literal_links = train("literal, as printed", **LITERAL, **LINKS)
corrected_links = train("corrected, noise shrunk", **PAPER, **LINKS)

part(
    "4. What the paper's messages expose (section VII counts the LDP features only)",
    "These messages have no protection at all:",
)
for task, run in {"Classification": corrected, "Link prediction": corrected_links}.items():
    console.print(f"{task}:")
    for messages, learns in unprotected(run):
        item(f"{messages:,} messages: {learns}")

part(
    "5. The strict profile (not in the paper)",
    "Labels are randomized once, sums carry noise, and unprotected messages are disabled.",
)
strict = train("classification", task="classify")
strict_links = train("link prediction", task="link")
for run in (strict, strict_links):
    for warning in run.model.warnings[:1]:
        item(f"{run.config.train.task}: {warning}")

part(
    "6. All of it side by side",
    f"Test scores on {asked.graph}, seed 0. Control: messages without information. Local: no "
    "neighbours. Smaller ε protects more: with ε = 3, a guess of a label that is right in 25 % "
    "of cases becomes right in 87 % at most.",
)
table = figures("", "score", "control", "local")
table.add_column("protected: ε, or (ε, δ)")
for task, runs in {
    "labels (accuracy)": (literal, corrected, strict),
    "links (ROC-AUC)": (literal_links, corrected_links, strict_links),
}.items():
    table.add_row(f"[bold]{task}[/bold]")
    before = ""
    for words, run in zip(("paper, literal", "paper, corrected", "strict"), runs, strict=True):
        shown = [score(run, variant) for variant in ("run", "control", "own")]
        now = protected(run)
        table.add_row(f" {words}", *shown, "the same" if now == before else now)
        before = now
    table.add_row(" local model", score(runs[1], "own"), "", "", "no message to neighbours")
console.print(table)
seconds = time.perf_counter() - start
console.print(f"This took {seconds:.0f} s. Next: lumos train {asked.graph} --out runs/demo")
