"""Tables of README and docs, generated from committed results: `python -m reproduce --write-docs`.

A block stands between `<!-- generated: NAME -->` and `<!-- end -->`. Its text comes from
docs/results/*.json alone, so no graph and no run is needed, and tests compare it. Numbers inside
sentences are those of `reproduce.sentences`.
"""

import json
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.strict_tradeoff import draw_committed

from benchmarks import learning_curves
from lumos.errors import InputError
from lumos.evaluation.pool import plain_settings
from lumos.storage import write_text
from lumos.training.profile import PAPER, STRICT
from reproduce import claims, held_out_tables, heterogeneity, liars_tables, sentences, strict_tables
from reproduce.dense import DENSE_EPSILONS, DIMENSIONS
from reproduce.evaluation import MEASURES, Outcome, PaperEvaluation, Scores
from reproduce.figures import COST_MEASURES, cost_by_balancer
from reproduce.picture import PICTURE, draw, numbers, numbers_in
from reproduce.runs import LITERAL, ONE_SCORE, Run
from reproduce.settings import EPSILONS, Dataset, Settings

ROOT = Path(__file__).parents[1]
PAGES = (
    "README.md",
    "docs/paper.md",
    "docs/evaluate.md",
    "docs/strict-results.md",
    "docs/strict-guarantees.md",
    "docs/faq.md",
    "docs/strict.md",
    "docs/howto/read-guarantees.md",
    "docs/audit.md",
    "docs/howto/own-model.md",
    "docs/deployment.md",
    "docs/liars.md",
    "docs/paper-devices.md",
)
"""Files that have generated blocks or sentences."""
TRADEOFF = "docs/figures/strict-tradeoff.svg"
CURVES = "docs/figures/learning-curves.svg"
GRAPHS = {"facebook": (22_470, 170_823, 4_714, 4), "lastfm": (7_624, 27_806, 0, 18)}
"""Devices, edges, features and classes; LastFM's features cannot be obtained here."""
SMALL_EPSILON = 8.0
"""The largest ε that the answer about dense features calls small."""
WIDTH = 120
"""Letters in a line of text."""
BLOCK = re.compile(r"(<!-- generated: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Kept:
    """Committed results, found by what was run instead of by the fingerprint of a graph."""

    def __init__(self, folder: Path = ROOT / "docs" / "results") -> None:
        self._folder = folder
        self._by_run: dict[str, dict[str, Any]] = {}
        for path in sorted(folder.glob("reproduce-*.json")):
            for record in json.loads(path.read_text("utf-8")):
                name = _name(record["kind"], record["graph"], record["seed"], record["settings"])
                self._by_run[name] = record["result"]

    def lookup(self, run: Run) -> Outcome:
        """Return the committed result of a run, or that there is none."""
        settings = json.loads(json.dumps(plain_settings(dict(run.settings))))
        result = self._by_run.get(_name(run.kind, run.graph, run.seed, settings))
        return Outcome(result) if result is not None else Outcome()

    def evaluation(self, graph: str) -> PaperEvaluation:
        """Return the evaluation of one of the paper's graphs."""
        devices, edges, features, classes = GRAPHS[graph]
        dataset = Dataset(
            spec=graph,
            name=graph,
            devices=devices,
            edges=edges,
            features=features,
            classes=classes,
            whole="",
            structure="",
        )
        return PaperEvaluation(dataset=dataset, settings=Settings(), lookup=self.lookup)

    def read(self, name: str) -> Any:
        """Return the content of another file of results."""
        return json.loads((self._folder / name).read_text("utf-8"))

    def guarantee_rows(self, settings: str) -> dict[str, dict[str, str]]:
        """Return a table of guarantees, by relation."""
        return {row["about"]: row for row in self.read("guarantees.json")[settings]}

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The numbers that sentences quote."""
        return sentences.facts(self)

    @cached_property
    def facebook(self) -> PaperEvaluation:
        """The evaluation of Facebook."""
        return self.evaluation("facebook")


def _name(kind: str, graph: str, seed: int, settings: dict[str, Any]) -> str:
    return json.dumps([kind, graph, seed, settings], sort_keys=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    rule = "|" + "---|" * len(headings) + "\n"
    first, *rest = ("| " + " | ".join(line) + " |\n" for line in (headings, *rows))
    return "".join([first, rule, *rest])


def _paragraph(*sentences: str) -> str:
    return textwrap.fill(" ".join(sentences), WIDTH, break_on_hyphens=False) + "\n"


def _number(value: float | None, digits: int, sign: str = "") -> str:
    return claims.NONE if value is None else f"{value:{sign}.{digits}f}"


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(np.mean(found)) if found else None


def _score(scores: Scores, digits: int) -> str:
    """Return mean, standard deviation and seeds."""
    values = list(scores.by_seed.values())
    if not values:
        return claims.NONE
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread} ({len(values)})"


def _control(scores: Scores, digits: int) -> str:
    """Return the control and the gain over it, on the seeds that have one."""
    if not scores.control:
        return claims.NONE
    gain = np.mean([scores.by_seed[seed] - score for seed, score in scores.control.items()])
    return f"{np.mean(list(scores.control.values())):.{digits}f} ({gain:+.{digits}f})"


def claims_block(kept: Kept, graph: str) -> str:
    """Return one row for each claim about a graph."""
    evaluation = kept.evaluation(graph)
    measured = heterogeneity.lines(
        kept.read("heterogeneity.json"), graph, evaluation.dataset.paper_name
    )
    return table(
        claims.HEADINGS, [line.cells() for line in (*claims.lines_of(evaluation), *measured)]
    )


def scores_block(kept: Kept, task: str) -> str:
    """Return scores at ε = 2 with controls, beside those that follow from the paper."""
    theirs, digits = claims.filled_in(kept.facebook, task), MEASURES[task].digits
    rows = []
    for key, system, name in claims.SYSTEMS:
        if (system, task) == ("lpgnn", "link"):
            continue
        cells = [name]
        for place, backbone in enumerate(claims.BACKBONES):
            cells.append(_number(theirs.get(key, (None, None))[place], digits))
            scores = claims.system_scores(kept.facebook, system, task, backbone)
            if place and not claims.has_backbone(system, task):
                scores = Scores()
            cells += [_score(scores, digits), _control(scores, digits)]
        rows.append(cells)
    what = "accuracy, %" if task == "classify" else "ROC-AUC"
    headings = [what]
    for backbone in ("GCN", "GAT"):
        headings += [f"paper {backbone}, filled in", f"ours {backbone}", "control (gain over it)"]
    return table(headings, rows)


def epsilon_block(kept: Kept) -> str:
    """Return scores over ε."""
    headings = ["GCN, seed 0", "ε", "paper, filled in"]
    headings += ["literal", "control", "corrected", "control", "strict", "control"]
    rows = []
    for task, measure in MEASURES.items():
        theirs = claims.filled_in(kept.facebook, task)["epsilon"]
        for place, epsilon in enumerate(EPSILONS):
            cells = [measure.name, f"{epsilon:g}", _number(theirs[place], measure.digits)]
            for variant in (LITERAL, PAPER, STRICT):
                if (variant, task) in ONE_SCORE:
                    scores = Scores()
                else:
                    scores = kept.facebook.train(variant, task, "gcn", epsilon, range(1))
                cells.append(_number(_mean(scores.by_seed.values()), measure.digits))
                cells.append(_number(_mean(scores.control.values()), measure.digits))
            rows.append(cells)
    return table(headings, rows)


def cost_block(kept: Kept) -> str:
    """Return savings of an epoch by what is counted, with MCMC and `optimal`."""
    rows = []
    for _, field, saving, _ in COST_MEASURES:
        for task in MEASURES:
            cells = [saving.removesuffix(", %"), task]
            for graph in GRAPHS:
                by = cost_by_balancer(kept.evaluation(graph), task)[1]
                cells += [
                    f"{100 * (1 - by[balancer][field] / by['none'][field]):.2f}"
                    for balancer in ("mcmc", "optimal")
                ]
            rows.append(cells)
    headings = ["%", "task", "Facebook, MCMC", "`optimal`", "LastFM, MCMC", "`optimal`"]
    return table(headings, rows)


@dataclass(frozen=True)
class DenseCell:
    """A run on dense features, in %."""

    dimension: int
    epsilon: float
    variant: str
    score: float
    control: float
    local: float | None


def dense_cells(kept: Kept) -> list[DenseCell]:
    """Return the runs on dense features that are committed."""
    found = []
    for dimension in DIMENSIONS:
        for epsilon in DENSE_EPSILONS:
            for variant in (LITERAL, PAPER):
                run = kept.facebook.runs.dense(dimension, variant, epsilon)
                result = kept.lookup(run).result
                if result is not None:
                    local = result.get("own_test_accuracy")
                    found.append(
                        DenseCell(
                            dimension,
                            epsilon,
                            variant,
                            100 * result["test_accuracy"],
                            100 * result["control_test_accuracy"],
                            None if local is None else 100 * local,
                        )
                    )
    return found


def dense_block(kept: Kept) -> str:
    """Return accuracies on dense features, with controls and the local model."""
    cells = {(one.dimension, one.epsilon, one.variant): one for one in dense_cells(kept)}
    rows = []
    for dimension in DIMENSIONS:
        for epsilon in DENSE_EPSILONS:
            row = [str(dimension), f"{epsilon:g}"]
            local = None
            for variant in (LITERAL, PAPER):
                one = cells.get((dimension, epsilon, variant))
                row += (
                    [claims.NONE] * 3
                    if one is None
                    else [
                        f"{one.score:.1f}",
                        f"{one.control:.1f}",
                        f"{one.score - one.control:+.1f}",
                    ]
                )
                local = one.local if one is not None and one.local is not None else local
            rows.append([*row, _number(local, 1)])
    headings = ["features", "ε", "literal", "control", "gain"]
    headings += ["corrected", "control", "gain", "local model"]
    return table(headings, rows)


def dense_answer(kept: Kept) -> str:
    """Return, in words, at which ε and dimension releases help."""
    cells = dense_cells(kept)
    devices = GRAPHS["facebook"][0] / 4
    error = 100 * np.sqrt(2 * 0.7 * 0.3 / devices)
    by_gain = sorted(cells, key=lambda one: one.control - one.score)
    best = {variant: next(one for one in by_gain if one.variant == variant)
            for variant in (LITERAL, PAPER)}  # fmt: skip
    local = {one.dimension: one.local for one in cells if one.local is not None}
    clear = [one for one in by_gain if one.score - one.control > 2 * error]
    small = [one.score - one.control for one in cells if one.epsilon <= SMALL_EPSILON]
    where = " and ".join(f"{one.dimension} features, ε = {one.epsilon:g}" for one in clear)
    above = [one for one in clear if one.score > (local[one.dimension] or 0)]
    literal, corrected = best[LITERAL], best[PAPER]
    sentences = [
        f"**Up to ε = {SMALL_EPSILON:g} the encoder does not help**: gains over the control are "
        f"between {min(small):+.1f} and {max(small):+.1f} points, where two standard errors of a "
        f"difference are about {2 * error:.1f}.",
        f"The largest gain is {literal.score - literal.control:+.1f} as printed "
        f"({literal.dimension} features, ε = {literal.epsilon:g}) and "
        f"{corrected.score - corrected.control:+.1f} corrected ({corrected.dimension} features, "
        f"ε = {corrected.epsilon:g}).",
        f"Beyond two standard errors: {where or 'none'}."
        + ("" if above or not clear else " That run is still below the local model, which sends "
           "nothing." if len(clear) == 1 else " These are still below the local model, which "
           "sends nothing."),
        "One seed each; an ε of 32 or more is no protection.",
    ]  # fmt: skip
    return _paragraph(*sentences)


def weakest(row: Mapping[str, str]) -> str:
    """Return the cell of a row of guarantees with the largest ε."""
    cells = [cell for key, cell in row.items() if key != "about" and re.search(r"\d", cell)]
    return max(cells, key=lambda cell: float(re.findall(r"\d+(?:\.\d+)?", cell)[0]))


def guarantees_block(kept: Kept, settings: str = "default") -> str:
    """Return the guarantees of strict classification, by relation and role."""
    rows = [
        [cell.replace("1e-05", "1e-5").split(":")[0] for cell in row.values()]
        for row in kept.guarantee_rows(settings).values()
    ]
    return table(["relation", "training devices", "validation devices", "other devices"], rows)


def learning_curves_block(kept: Kept) -> str:
    """Return accuracies by share of training devices, for each graph."""
    cells = kept.read("learning-curves.json")
    return "\n".join(f"{name}:\n\n{learning_curves.table(cells, name)}\n" for name in cells)


def report_block(kept: Kept) -> str:
    """Return the ε to report for each relation, of the role with the largest."""
    names = {"record replaced": "record replaced (label and features)"}
    found = kept.guarantee_rows("default")
    rows = []
    for about in ("label replaced", "features replaced", "record replaced", "edge added or removed",
                  "edge replaced at one end"):  # fmt: skip
        cell = weakest(found[about]).replace("1e-05", "1e-5")
        pure = re.fullmatch(r"ε = (\S+), pure", cell)
        rows.append([names.get(about, about), f"({pure[1]}, 0)" if pure else cell])
    rows.append(["degree; device absent", "no guarantee"])
    return table(["relation", "(ε, δ)"], rows)


GRAPH_NAMES = {"demo": "demo, 6 classes, 600 features",
               "facebook": "Facebook, 4 classes, 4,714 features"}  # fmt: skip


def labels_block(kept: Kept) -> str:
    """Return accuracies with few labels."""
    rows: list[list[str]] = []
    for row in kept.read("labels.json"):
        known = {line[0].split(",")[0].lower() for line in rows}
        whole = GRAPH_NAMES[row["graph"]]
        name = whole.split(",")[0] if row["graph"] in known else whole
        scores = [strict_tables.spread(row[of], 2, 100) for of in ("run", "local")]
        rows.append([name, row["split"], f"{row['training']:,}", *scores])
    return table(["graph", "split", "training devices", "run", "local model"], rows)


RIVALS = (
    ("lpgnn-blink", "LPGNN on Blink's edges",
     "label ε = 3, features ε = 8, edge ε = 16; its server reconstructs 99.9 % of the edges"),
    ("lpgnn", "LPGNN", "label ε = 3, features ε = 8; its server knows every edge"),
    ("gap", "GAP", "edge (16, 10⁻⁵); a trusted curator knows everything"),
)  # fmt: skip
"""Baselines of README's table: key, name, protection."""


def results_block(kept: Kept) -> str:
    """Return README's table of results on Facebook."""
    strict, single = kept.read("strict-facebook.json"), kept.read("paper-facebook.json")
    rows = []
    about = kept.guarantee_rows("default")
    added, replaced = (
        weakest(about[f"edge {how}"]).replace("1e-05", "10⁻⁵")
        for how in ("added or removed", "replaced at one end")
    )
    edges = f"edge {added} added or removed, {replaced} replaced at one end"
    for epsilon, name in ((3, "default"), (2, "`--label-epsilon 2`")):
        by_seed = strict[f"label {epsilon}"].values()
        fields = ("test", "own", "control")
        means = [100 * np.mean([one[field] for one in by_seed]) for field in fields]
        both = f"both ({8 + epsilon}, 10⁻⁵)"
        edge = edges if epsilon == 3 else "edge as above"
        rows.append(
            [
                f"**strict**, {name} ({len(by_seed)})",
                f"**{means[0]:.2f}**",
                f"{means[1]:.2f}",
                f"{means[2]:.2f}",
                f"label ε = {epsilon}; features (8, 10⁻⁵); {both}; {edge}",
            ]
        )
    paper = [
        claims.variant_scores(kept.facebook, PAPER, "classify", backbone)
        for backbone in claims.BACKBONES
    ]
    tests = " / ".join(_number(_mean(scores.by_seed.values()), 2) for scores in paper)
    controls = " / ".join(_number(_mean(scores.control.values()), 2) for scores in paper)
    corrected, literal = single["corrected"]["result"], single["literal"]["result"]
    local = f"{100 * corrected['own_test_accuracy']:.2f} / {claims.NONE}"
    nothing = "nothing: ε = 2 covers encoded features, not embeddings, gradients or losses"
    own = _mean(kept.facebook.baseline("own", "classify", "gcn").by_seed.values())
    whole = _mean(kept.facebook.baseline("centralized", "classify", "gcn").by_seed.values())
    rivals = {row["key"]: row for row in kept.read("evaluate.json")["facebook"]["rows"]}
    none = claims.NONE
    rows += [
        ["paper, GCN / GAT (3; next two columns: seed 0)", tests, local, controls, nothing],
        ["paper `--literal`, GCN (1)", f"{100 * literal['test_accuracy']:.2f}", none,
         f"{100 * literal['control_test_accuracy']:.2f}", "nothing, as above"],
        ["local model, unprotected (3)", _number(own, 2), none, none,
         "nothing: weights without noise"],
        *(
            [f"{name} (3)", f"{100 * rivals[key]['mean']:.2f}", none, none, protects]
            for key, name, protects in RIVALS
        ),
        ["centralized GCN (3)", _number(whole, 2), none, none, "nothing"],
    ]  # fmt: skip
    headings = ["system", "test accuracy %", "local model, same protection", "control"]
    return table([*headings, "what is guaranteed"], rows)


COMPARED = ("facebook", "demo", "twitch-ENGB", "demo:600")
"""Graphs of the comparison with equal budgets, in the order of its columns."""


def comparison_block(kept: Kept) -> str:
    """Return the scores that `lumos evaluate GRAPH --seeds 3` printed, a column for each graph."""
    evaluations = kept.read("evaluate.json")
    by_graph = [{row["key"]: row for row in evaluations[name]["rows"]} for name in COMPARED]
    rows = []
    for key, first in by_graph[0].items():
        cells = [f"**{first['system']}**" if key == "strict" else first["system"]]
        for row in (by_key[key] for by_key in by_graph):
            gain = row["minus_local"]
            over = "" if gain is None else f" ({100 * gain:+.1f})"
            cells.append(f"{100 * row['mean']:.1f} ± {100 * row['sd']:.1f}{over}")
        rows.append(cells)
    sizes = [f"{name}, {evaluations[name]['devices']:,} devices" for name in COMPARED]
    return table(["accuracy, %", *sizes], rows)


def own_layers_block(kept: Kept) -> str:
    """Return the accuracies of layers and models of one's own beside GCN and GAT."""
    cells: dict[str, dict[str, Any]] = kept.read("own-layers.json")["cells"]
    given = {
        "GCN": '`backbone="gcn"`',
        "GAT": '`backbone="gat"`',
        "GraphSAGE": "`backbone=SAGEConv, projection=16`",
        "GIN": "`backbone=gin, projection=16`",
        "own module": "`model=GatedTree, projection=16`",
    }
    rows = []
    for name, words in given.items():
        mine = [cell for key, cell in cells.items() if key.split("/")[0] == name]
        scores = [100 * cell["test_accuracy"] for cell in mine]
        spread = f"{np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}"
        rows.append([name, words, f"{spread} ({len(scores)})", f"{mine[0]['weights']:,}"])
    return table(["network", "given as", "test accuracy, % (seeds)", "weights"], rows)


TIMING = {
    "watching": "watching, devices late by 0.3 s in the mean",
    "staggered by less than a tick": "sums delivered one after another, 0.037 s apart",
    "staggered by more than a tick": "sums delivered one after another, 0.43 s apart",
    "withheld sum": "one sum withheld for 10 s",
    "forged sum": "a forged sum, and a forged end of the round",
    "exclusion": "a device falsely left out",
    "crash": "a device killed, and started again",
    "real processes, sums 0.8 s apart": "12 real processes, sums 0.8 s apart",
}
"""Attacks on timing, and how the table names them."""


def timing_block(kept: Kept) -> str:
    """Return what attacks on timing find, without the defence and with it."""
    found = {tuple(key.split("; "))[1:]: of for key, of in kept.read("timing.json").items()}
    rows = []
    for attack, name in TIMING.items():
        cells = [name]
        for kind in ("before", "now"):
            of = found.get((attack, kind))
            if of is None:
                cells += [claims.NONE] * 2
                continue
            runs = len(of["areas"])
            error = math.sqrt(sum(error**2 for error in of["errors"])) / runs
            shown = f"{np.mean(of['areas']):.3f} ± {error:.3f} ({runs})"
            cells += [shown, f"{of['named']}, {of['true']}"]
        rows.append(cells)
    headings = ["attack", "without the defence", "named, edges", "now", "named, edges"]
    return table(headings, rows)


def heterogeneity_block(kept: Kept, task: str) -> str:
    """Return what balanced trees save of the time of an epoch."""
    headings = ["graph", "what takes time", "without balancing", "greedy", "MCMC", "optimal"]
    return table(headings, heterogeneity.rows(kept.read("heterogeneity.json"), task))


PAPER_RUNS = {"classify": "classification", "link": "links"}


def paper_devices_block(kept: Kept) -> str:
    """Return the paper's training on real devices, beside the simulation."""
    rows = []
    for key, cell in kept.read("paper-devices.json").items():
        graph, task, backbone = key.split(", ")
        wire, epochs = cell["wire_bytes"], cell["epochs"]
        equal = cell["trees_equal"] and cell["weights"] == cell["losses"] == 0
        apart = f"up to {max(cell['weights'], cell['losses']):.0e} apart"
        rows.append(
            [
                graph,
                f"{PAPER_RUNS[task]}, {backbone.upper()}",
                f"{cell['seconds_per_epoch']:.2f}",
                f"{1e3 * cell['cpu_seconds'] / epochs:.0f} ms",
                f"{wire / epochs / 1e3:,.0f} kB",
                f"{wire / cell['ledger_bytes']:.2f} times",
                f"{cell['megabytes']:.0f} MB",
                "equal" if equal else apart if cell["trees_equal"] else "trees differ",
            ]
        )
    headings = ["graph", "task, network", "seconds per epoch", "processor time of a device",
                "bytes of a device", "against its ledger", "memory of its own",
                "trees, weights, losses"]  # fmt: skip
    return table(headings, rows)


BLOCKS: dict[str, Callable[[Kept], str]] = {
    "heterogeneity": partial(heterogeneity_block, task="classify"),
    "heterogeneity-link": partial(heterogeneity_block, task="link"),
    "paper-devices": paper_devices_block,
    "timing": timing_block,
    "comparison": comparison_block,
    "results": results_block,
    "claims": lambda kept: claims_block(kept, "facebook"),
    "claims-lastfm": lambda kept: claims_block(kept, "lastfm"),
    "rule": lambda _: _paragraph(claims.RULE, claims.BRACKETS, claims.LITERAL_COLUMN),
    "accuracy": lambda kept: scores_block(kept, "classify"),
    "auc": lambda kept: scores_block(kept, "link"),
    "epsilon": epsilon_block,
    "cost": cost_block,
    "dense": dense_block,
    "dense-answer": dense_answer,
    "guarantees": guarantees_block,
    "guarantees-few": partial(guarantees_block, settings="few labels"),
    "guarantees-labelled": partial(guarantees_block, settings="few labels, labelled devices only"),
    "learning-curves": learning_curves_block,
    "report": report_block,
    "labels": labels_block,
    "own-layers": own_layers_block,
    "strict-facebook": lambda kept: table(
        strict_tables.CLASSIFY_HEADINGS,
        strict_tables.classify_rows(kept.read, strict_tables.FACEBOOK),
    ),
    "strict-others": lambda kept: table(
        strict_tables.CLASSIFY_HEADINGS,
        strict_tables.classify_rows(kept.read, strict_tables.OTHERS),
    ),
    "strict-frontier": lambda kept: table(
        strict_tables.FRONTIER_HEADINGS, strict_tables.frontier_rows(kept.read)
    ),
    "strict-costs": lambda kept: table(
        strict_tables.COST_HEADINGS, strict_tables.cost_rows(kept.read)
    ),
    "strict-small-links": lambda kept: table(
        strict_tables.SMALL_LINK_HEADINGS, strict_tables.small_link_rows(kept.read)
    ),
    "held-out-choices": lambda kept: table(
        held_out_tables.CHOICE_HEADINGS, held_out_tables.choice_rows(kept.read("held-out.json"))
    ),
    "held-out-families": lambda kept: table(
        held_out_tables.FAMILY_HEADINGS, held_out_tables.family_rows(kept.read("held-out.json"))
    ),
    "strict-links": lambda kept: table(
        ["", *strict_tables.LINK_GRAPHS], strict_tables.link_rows(kept.read)
    ),
    "liars-poisoner": lambda kept: table(
        liars_tables.POISONER_HEADINGS, liars_tables.poisoner_rows(kept.read)
    ),
    "liars-ranges": lambda kept: liars_tables.ranges(kept.read),
    "liars-bounds": lambda kept: table(*liars_tables.bounds_table(kept.read)),
    "liars-strategies": lambda kept: table(*liars_tables.strategy_table(kept.read)),
    "liars-small": lambda kept: table(
        liars_tables.SMALL_HEADINGS, liars_tables.small_rows(kept.read)
    ),
    "liars-defences": lambda kept: table(
        liars_tables.DEFENCE_HEADINGS, liars_tables.defence_rows(kept.read)
    ),
    "liars-medians": lambda kept: table(
        liars_tables.MEDIAN_HEADINGS, liars_tables.median_rows(kept.read)
    ),
    "strict-link-leak": lambda kept: table(
        strict_tables.LEAK_HEADINGS, strict_tables.leak_rows(kept.read)
    ),
}
"""The text of every block, by name."""


def regenerated(text: str, kept: Kept, where: str) -> str:
    """Return a page with its blocks and the numbers of its sentences written anew.

    Raises:
        InputError: a block has an unknown name.
    """

    def block(match: re.Match[str]) -> str:
        if match[2] not in BLOCKS:
            raise InputError(f"{where}: there is no generated block {match[2]!r}")
        return match[1] + BLOCKS[match[2]](kept) + match[4]

    return sentences.written(BLOCK.sub(block, text), where, kept.facts)


def write_documents(root: Path = ROOT) -> list[str]:
    """Write blocks and picture anew where numbers differ; return the files that changed."""
    kept, changed = Kept(root / "docs" / "results"), []
    for page in PAGES:
        path = root / page
        before = path.read_text("utf-8")
        after = regenerated(before, kept, page)
        if after != before:
            write_text(path, after)
            changed.append(page)
    if not (root / PICTURE).exists() or numbers_in(root / PICTURE) != numbers(kept):
        draw(root / PICTURE, kept)
        changed.append(PICTURE)
    pictures = {
        TRADEOFF: draw_committed(root / "docs" / "results"),
        CURVES: learning_curves.draw(kept.read("learning-curves.json")),
    }
    for name, picture in pictures.items():
        if (root / name).read_text("utf-8") != picture:
            write_text(root / name, picture)
            changed.append(name)
    return changed
