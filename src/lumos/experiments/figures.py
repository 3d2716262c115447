"""The rows of every figure, and with them the cells that it needs.

A figure is a function of `ask`, which has the outcome of a cell. To plan, it is called with an
`ask` that only takes notes: so what is run is exactly what is shown.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from lumos.experiments import reported
from lumos.experiments.cell import Cell
from lumos.experiments.cost import DeviceModel
from lumos.experiments.dataset import Dataset
from lumos.experiments.reported import claim
from lumos.experiments.settings import Frozen

BACKBONES = ("gcn", "gat")
BALANCERS = ("none", "greedy", "mcmc", "optimal")
PROFILES = ("paper", "strict")
NAMES = {
    "paper": "Lumos paper",
    "letter": "Lumos paper, recovery to the letter",
    "strict": "Lumos strict",
    "centralized": "centralized",
    "lpgnn": "LPGNN",
    "naive": "naive FedGNN",
    "own": "own features only",
}
MEASURES = {"classify": ("accuracy, %", "test_accuracy", 100.0), "link": ("ROC-AUC", "test_auc", 1)}
NOT_RUN = "not run"
LEFT_OUT = "left out of the quick form"
NOTHING = 1e-6
"""An ε at which a release says nothing."""
LETTER = (
    "recovered features as the paper has them; the epoch is chosen on validation as in all runs"
)
OTHER_CODE = "kept from another code version"
LPGNN_CONTROL = f"the control is LPGNN with ε = {NOTHING:g} for features"


@dataclass(frozen=True)
class CellOutcome:
    """What is known of a cell."""

    result: dict[str, Any] | None = None
    reason: str = NOT_RUN
    """Why there is none."""
    other_code: bool = False

    @property
    def age(self) -> str:
        """What is to be said of it where other code made it."""
        return OTHER_CODE if self.other_code else ""


Ask = Callable[[Cell], CellOutcome]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a figure's table."""

    figure: str
    dataset: str
    system: str
    measure: str
    task: str = ""
    backbone: str = ""
    epsilon: float | None = None
    paper: float | None = None
    """What the paper reports."""
    paper_shown: str = ""
    """The same as the paper says it, where it is a bound."""
    ours: float | None = None
    """Mean over the seeds."""
    spread: float | None = None
    """Standard deviation over the seeds, from two on."""
    seeds: int = 0
    control: float | None = None
    """The same figure where releases say nothing."""
    over_control: float | None = None
    """Of a score: what it is above the control, on the seeds that have one."""
    notes: tuple[str, ...] = ()
    """What a reader should know, a sentence each."""
    why: str = ""
    """Where it disagrees with the paper: the reason."""
    digits: int = 2

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        told = {name: value for name, value in asdict(self).items() if name != "digits"}
        del told["notes"]
        return {**told, "note": "; ".join(self.notes)}


@dataclass(frozen=True)
class Scores:
    """A figure of one system, by seed."""

    of: dict[int, float] = field(default_factory=dict)
    control: dict[int, float] = field(default_factory=dict)
    """Of the seeds that have one."""
    notes: tuple[str, ...] = ()

    @staticmethod
    def one(value: float | None, *notes: str) -> "Scores":
        """A single figure, or none."""
        return Scores({} if value is None else {0: value}, {}, tuple(filter(None, notes)))


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One graph, the settings, and the way to results."""

    subject: Dataset
    frozen: Frozen
    ask: Ask = field(repr=False)
    profiles: tuple[str, ...] = PROFILES

    @property
    def ways(self) -> tuple[str, ...]:
        """The profiles, and the paper's to the letter where it is asked for."""
        letter = "paper" in self.profiles and self.frozen.letter
        return (*self.profiles, "letter") if letter else self.profiles

    @property
    def letter_left_out(self) -> bool:
        """Whether rows to the letter belong here, and were not asked for."""
        return "paper" in self.profiles and not self.frozen.letter

    def left_out(self, figure: str, measure: str, **about: Any) -> Row:
        """The row that says so."""
        return self.row(figure, NAMES["letter"], measure, Scores.one(None, LEFT_OUT), **about)

    def train(self, how: str, task: str, backbone: str, epsilon: float, seed: int) -> Cell:
        """A run of Lumos: a profile, or "letter": the paper's, with its recovery to the letter."""
        return self._train(how, task, backbone, epsilon, seed)

    def without(self, what: str, how: str, task: str, backbone: str, seed: int) -> Cell:
        """A run of the paper profile without virtual nodes (stars) or without trimming."""
        changed = {"virtual_nodes": False} if what == "stars" else {"balancer": "none"}
        return self._train(how, task, backbone, 2.0, seed, control=False, **changed)

    def _train(
        self,
        how: str,
        task: str,
        backbone: str,
        epsilon: float,
        seed: int,
        *,
        control: bool = True,
        **changed: Any,
    ) -> Cell:
        frozen = self.frozen
        profile = "paper" if how == "letter" else how
        settings: dict[str, Any] = {
            "profile": profile,
            "task": task,
            "backbone": backbone,
            "epsilon": epsilon,
            "control": control and frozen.control(profile, task, backbone, epsilon, seed),
        }
        if profile in frozen.epochs:
            settings |= {"epochs": frozen.epochs[profile][backbone], "patience": frozen.patience}
        if profile == "paper":
            settings |= {"compare": "ideal", "floor": False}
            settings |= {"balancer": "mcmc", **changed}
            settings |= {"recovery": "letter"} if how == "letter" else {}
            if settings["balancer"] == "mcmc":
                settings["iterations"] = frozen.iterations(self.subject.dataset)
        return Cell.of("train", self.subject.spec, seed, **settings)

    def baseline(
        self, system: str, task: str, backbone: str, seed: int, epsilon: float = 2.0
    ) -> Cell:
        """A run of a system that we are compared with."""
        settings: dict[str, Any] = {
            "system": system,
            "task": task,
            "epochs": self.frozen.epochs["baseline"][backbone],
            "patience": self.frozen.patience,
        }
        if system != "own":
            settings["backbone"] = backbone
        if system in ("lpgnn", "naive"):
            settings["epsilon"] = epsilon
        if system == "lpgnn":
            settings["label_epsilon"] = self.frozen.label_epsilon
        settings |= self.frozen.further(system, backbone)
        return Cell.of("baseline", self.subject.spec, seed, **settings)

    def baselines(self, system: str, task: str, backbone: str) -> Scores:
        """The scores of a system at ε = 2; LPGNN's beside a control."""
        seeds = range(self.frozen.seeds)
        scores = self.scores([self.baseline(system, task, backbone, s) for s in seeds], task)
        beside = seeds[: self.frozen.control_seeds.get(system, {}).get(backbone, 0)]
        if system != "lpgnn" or not beside:
            return scores
        silent = [self.baseline(system, task, backbone, seed, NOTHING) for seed in beside]
        found = self.scores(silent, task)
        control = {seed: score for seed, score in found.of.items() if seed in scores.of}
        said = (LPGNN_CONTROL,) if control else tuple(f"control: {why}" for why in found.notes)
        return Scores(scores.of, control, tuple(dict.fromkeys((*scores.notes, *said))))

    def scores(self, cells: Sequence[Cell], task: str) -> Scores:
        """The test scores of some seeds; a note says what is missing."""
        if lacking := self.subject.lacks(task):
            return Scores.one(None, lacking)
        _, name, times = MEASURES[task]
        found: dict[int, float] = {}
        control: dict[int, float] = {}
        notes: list[str] = []
        for cell in cells:
            outcome = self.ask(cell)
            if outcome.result is None:
                notes.append(outcome.reason)
                continue
            if outcome.result.get(name) is None:
                notes.append("a run ended without a score")
                continue
            found[cell.seed] = times * outcome.result[name]
            if outcome.result.get(f"control_{name}") is not None:
                control[cell.seed] = times * outcome.result[f"control_{name}"]
            usual = self.frozen.epochs["baseline"][cell["backbone"] or "gcn"]
            if cell.kind == "baseline" and cell["epochs"] < usual:
                notes.append(f"{cell['epochs']} epochs, where others have up to {usual}")
            if outcome.age:
                notes.append(outcome.age)
            if cell["recovery"] == "letter":
                notes.append(LETTER)
            if len(found) == 1:  # the notes of another seed differ in a number at most
                said = outcome.result.get("notes", ())
                notes += [one for one in said if one not in self.subject.notes]
            if outcome.result.get("caution"):
                notes.append(outcome.result["caution"])
        return Scores(found, control, tuple(dict.fromkeys(notes)))

    def row(self, figure: str, system: str, measure: str, scores: Scores, **more: Any) -> Row:
        """A row with mean and spread, the paper's number and, where they differ, the reason."""
        key = more.pop("why", "")
        digits = more.pop("digits", 2)
        number = claim(
            figure,
            measure,
            more.get("task", ""),
            more.get("backbone", ""),
            more.get("epsilon"),
        )
        theirs = None if number is None else number.of(self.subject.dataset)
        values, beside = list(scores.of.values()), list(scores.control.values())
        mean = float(np.mean(values)) if values else None
        notes = scores.notes
        if 0 < len(beside) < len(values):
            notes = (*notes, f"the control is of {len(beside)} of the {len(values)} seeds")
        over = None
        if beside and measure in (name for name, *_ in MEASURES.values()):
            over = float(np.mean([scores.of[s] - c for s, c in scores.control.items()]))
        why = ""
        if (
            number is not None
            and theirs is not None
            and mean is not None
            and reported.disagrees(number, self.subject.dataset, mean)
        ):
            why = reported.WHY.get((measure, key), "")
        return Row(
            figure=figure,
            dataset=self.subject.name,
            system=system,
            measure=measure,
            paper=theirs,
            paper_shown="" if number is None or theirs is None else number.shown.format(theirs),
            ours=mean,
            spread=float(np.std(values, ddof=1)) if len(values) > 1 else None,
            seeds=len(values),
            control=float(np.mean(beside)) if beside else None,
            over_control=over,
            notes=notes,
            why=why,
            digits=digits,
            **more,
        )


def points(one: Scores, other: Scores, times: float = 1.0) -> Scores:
    """times · (one - other), seed by seed; the control against the same."""
    return _pairwise(one, other, lambda a, b: times * (a - b))


def relative(one: Scores, other: Scores) -> Scores:
    """100 · (one / other - 1), seed by seed; the control against the same."""
    some = Scores({seed: score for seed, score in other.of.items() if score}, {}, other.notes)
    if len(some.of) < len(other.of):
        some = Scores(some.of, {}, ("nothing is relative to a score of 0", *other.notes))
    return _pairwise(one, some, lambda a, b: 100 * (a / b - 1))


def _pairwise(one: Scores, other: Scores, how: Callable[[float, float], float]) -> Scores:
    """Of the seeds that both have; what the two are is said in their own rows."""
    found = {seed: how(one.of[seed], other.of[seed]) for seed in one.of if seed in other.of}
    notes = () if found else tuple(dict.fromkeys(one.notes + other.notes))
    most = max(len(one.of), len(other.of))
    if 0 < len(found) < most:
        notes = (f"of the {len(found)} of {most} seeds that both have",)
    return Scores(
        found,
        {seed: how(one.control[seed], other.of[seed]) for seed in one.control if seed in other.of},
        notes,
    )


def comparison(bench: Bench, task: str) -> list[Row]:
    """`classification` and `link-prediction`: every system, and the differences of the paper."""
    figure = "classification" if task == "classify" else "link-prediction"
    measure, _, times = MEASURES[task]
    to_points = 100.0 / times
    digits = 2 if task == "classify" else 4
    seeds = range(bench.frozen.seeds)
    others = ("centralized", "lpgnn", "naive") if task == "classify" else ("centralized", "naive")
    rows, derived = [], []
    for backbone in BACKBONES:
        about: dict[str, Any] = {"task": task, "backbone": backbone}
        baselines = {system: bench.baselines(system, task, backbone) for system in others}
        for profile in bench.profiles:
            cells = [bench.train(profile, task, backbone, 2.0, seed) for seed in seeds]
            ours = bench.scores(cells, task)
            named: dict[str, Any] = {**about, "epsilon": 2.0, "why": profile}
            rows.append(bench.row(figure, NAMES[profile], measure, ours, digits=digits, **named))
            differences = [
                (reported.AGAINST_CENTRALIZED, points(ours, baselines["centralized"], to_points)),
                (reported.AGAINST_NAIVE, relative(ours, baselines["naive"])),
            ]
            if task == "classify":
                against = points(ours, baselines["lpgnn"], to_points)
                differences.insert(1, (reported.AGAINST_LPGNN, against))
            derived += [
                bench.row(figure, NAMES[profile], name, found, **named)
                for name, found in differences
            ]
        for system, scores in baselines.items():
            epsilon = None if system == "centralized" else 2.0
            rows.append(
                bench.row(
                    figure, NAMES[system], measure, scores, digits=digits, epsilon=epsilon, **about
                )
            )
    own = bench.baselines("own", task, "gcn")
    rows.append(bench.row(figure, NAMES["own"], measure, own, digits=digits, task=task))
    return rows + derived


def epsilon(bench: Bench) -> list[Row]:
    """Scores over ε, and what is gained over ε = 0.5."""
    rows, derived = [], []
    seeds = range(bench.frozen.other_seeds)
    for task in ("classify", "link"):
        measure, *_ = MEASURES[task]
        if bench.letter_left_out:
            rows.append(bench.left_out("epsilon", measure, task=task, backbone="gcn"))
        for how in bench.ways:
            found = {
                e: bench.scores([bench.train(how, task, "gcn", e, seed) for seed in seeds], task)
                for e in bench.frozen.epsilons
            }
            least = found[min(found)]
            for e, scores in found.items():
                about: dict[str, Any] = {"task": task, "backbone": "gcn", "epsilon": e}
                digits = 2 if task == "classify" else 4
                rows.append(
                    bench.row("epsilon", NAMES[how], measure, scores, digits=digits, **about)
                )
                if e > min(found):
                    gained = relative(scores, least)
                    controls = relative(Scores(scores.control), Scores(least.control))
                    gained = Scores(gained.of, controls.of, gained.notes)
                    derived.append(
                        bench.row(
                            "epsilon",
                            NAMES[how],
                            reported.RELATIVE_TO_HALF,
                            gained,
                            why=how,
                            **about,
                        )
                    )
    return rows + derived


STRICT_ABLATION = (
    "strict: nobody carries an edge there, so there are no trees to trim, and stars are refused "
    "because they carry the number of neighbours in their normalisation"
)


def ablation(bench: Bench) -> list[Row]:
    """Without virtual nodes, and without tree trimming."""
    rows, derived = [], []
    for task in ("classify", "link"):
        for backbone in BACKBONES:
            about: dict[str, Any] = {"task": task, "backbone": backbone, "epsilon": 2.0}
            if "paper" in bench.profiles and backbone not in bench.frozen.ablated:
                derived += [
                    bench.row("ablation", NAMES["paper"], name, Scores.one(None, LEFT_OUT), **about)
                    for name in (reported.OVER_STARS, reported.OVER_UNTRIMMED)
                ]
            elif "paper" in bench.profiles:
                scored, differences = _ablated(bench, "paper", ("stars", "untrimmed"), about)
                rows += scored
                derived += differences
            if bench.letter_left_out and backbone == "gcn":
                derived.append(bench.left_out("ablation", reported.OVER_STARS, **about))
            if "letter" in bench.ways and backbone == "gcn":
                scored, differences = _ablated(bench, "letter", ("stars",), about)
                rows += scored
                derived += differences
            if "strict" in bench.profiles:
                nothing = Scores.one(None, STRICT_ABLATION)
                derived.append(bench.row("ablation", NAMES["strict"], "ablation", nothing, **about))
    return rows + derived


WITHOUT = {"": "", "stars": ", no virtual nodes", "untrimmed": ", no trimming"}


def _ablated(
    bench: Bench, how: str, modules: Sequence[str], about: dict[str, Any]
) -> tuple[list[Row], list[Row]]:
    """Scores of the whole and without each of the modules, and what the whole gains over those."""
    task, backbone = about["task"], about["backbone"]
    measure, _, times = MEASURES[task]
    digits = 2 if task == "classify" else 4
    seeds = range(bench.frozen.other_seeds)
    found = {"": bench.scores([bench.train(how, task, backbone, 2.0, s) for s in seeds], task)}
    for what in modules:
        cells = [bench.without(what, how, task, backbone, seed) for seed in seeds]
        found[what] = bench.scores(cells, task)
    rows = [
        bench.row("ablation", NAMES[how] + WITHOUT[what], measure, scores, digits=digits, **about)
        for what, scores in found.items()
    ]
    gained = []
    for what in modules:
        if what == "stars":
            name, gain, shown = (
                reported.OVER_STARS,
                points(found[""], found[what], 100.0 / times),
                2,
            )
        else:
            name, gain, shown = reported.OVER_UNTRIMMED, relative(found[""], found[what]), 3
        gained.append(bench.row("ablation", NAMES[how], name, gain, why=how, digits=shown, **about))
    return rows, gained


def balancer_cell(bench: Bench, balancer: str) -> Cell:
    """Trees of one balancer."""
    settings: dict[str, Any] = {"balancer": balancer, "compare": "ideal"}
    if balancer == "mcmc":
        settings["iterations"] = bench.frozen.iterations(bench.subject.dataset)
    return Cell.of("trees", bench.subject.spec, **settings)


def balancer_name(bench: Bench, balancer: str) -> str:
    """What tables call it."""
    steps = bench.frozen.iterations(bench.subject.dataset)
    return {"none": "no trimming", "mcmc": f"mcmc {steps:,} steps"}.get(balancer, balancer)


def workload(bench: Bench) -> list[Row]:
    """Largest workloads; the plot has their distribution."""
    rows = []
    for balancer in BALANCERS:
        outcome = bench.ask(balancer_cell(bench, balancer))
        scores = Scores.one(None, outcome.reason)
        if outcome.result is not None:
            bound = outcome.result["lower_bound"]
            note = f"least possible {bound}" + (", reached" if outcome.result["optimal"] else "")
            scores = Scores.one(float(outcome.result["max_workload"]), note, outcome.age)
        claimed = {"none": reported.UNTRIMMED_LARGEST, "greedy": "largest workload of Algorithm 1"}
        rows.append(
            bench.row(
                "workload",
                balancer_name(bench, balancer),
                claimed.get(balancer, reported.LARGEST),
                scores,
                why={"mcmc": "paper"}.get(balancer, balancer),
                digits=0,
            )
        )
    return rows


def cost_cell(bench: Bench, task: str) -> Cell:
    """Messages and simulated seconds of an epoch of the paper profile, for all balancers."""
    return Cell.of(
        "cost",
        bench.subject.spec,
        task=task,
        balancers=BALANCERS,
        iterations=bench.frozen.iterations(bench.subject.dataset),
        epochs=bench.frozen.cost_epochs,
        device=tuple(sorted(asdict(DeviceModel()).items())),
    )


MESSAGES = "messages per device and epoch"
MESSAGES_ALL = "messages per device and epoch, masked sum included"
MESSAGES_ALL_SAVED = "messages saved, masked sum included, %"
SECONDS = "simulated seconds per epoch"
SECONDS_ALONE = "simulated seconds per epoch, masked sum left out"
TIME_SAVED_ALONE = "epoch time saved, masked sum left out, %"
SECONDS_AT_ONCE = "simulated seconds per epoch, latency left out"
TIME_SAVED_AT_ONCE = "epoch time saved, latency left out, %"


def cost(bench: Bench) -> list[Row]:
    """Messages and simulated time of an epoch, with and without trimming."""
    rows = []
    for task in ("classify", "link"):
        if "paper" in bench.profiles:
            rows += _paper_cost(bench, task)
        if "strict" in bench.profiles:
            rows += _strict_cost(bench, task)
    return rows


def _paper_cost(bench: Bench, task: str) -> list[Row]:
    outcome = CellOutcome(reason=f"{bench.subject.name}: there are no labels to train on")
    if task == "link" or bench.subject.classes:
        outcome = bench.ask(cost_cell(bench, task))
    result = outcome.result or {"by": {}, "stand_in_features": False}
    by = {balancer: dict(told) for balancer, told in result["by"].items()}
    said = outcome.reason if outcome.result is None else ""
    if result["stand_in_features"]:
        said = "features stand in: 128 of them as in the paper, only their number matters"
    rows, saved = [], []
    kinds = (
        (MESSAGES, "tree_messages", reported.MESSAGES_SAVED, 1),
        (MESSAGES_ALL, "messages", MESSAGES_ALL_SAVED, 1),
        (SECONDS, "seconds", reported.TIME_SAVED, 3),
        (SECONDS_ALONE, "seconds_without_sum", TIME_SAVED_ALONE, 3),
        (SECONDS_AT_ONCE, "at_once", TIME_SAVED_AT_ONCE, 3),
    )
    latency = DeviceModel().latency
    for told in by.values():
        told["at_once"] = told["seconds"] - latency * told["rounds"]
    for measure, name, saving, digits in kinds:
        whole = by.get("none", {}).get(name)
        for balancer in BALANCERS:
            here = by.get(balancer, {}).get(name)
            system = f"{NAMES['paper']}, {balancer_name(bench, balancer)}"
            scores = Scores.one(here, said, outcome.age)
            rows.append(bench.row("cost", system, measure, scores, task=task, digits=digits))
            if balancer != "none":
                less = 100 * (1 - here / whole) if here is not None and whole else None
                saved.append(
                    bench.row("cost", system, saving, Scores.one(less, said), task=task, why=task)
                )
    return rows + saved


def _strict_cost(bench: Bench, task: str) -> list[Row]:
    """From the ledger of a training run: nobody carries an edge, so there is nothing to trim."""
    device = DeviceModel()
    outcome = CellOutcome(reason=bench.subject.lacks(task))
    if not outcome.reason:
        outcome = bench.ask(bench.train("strict", task, "gcn", 2.0, 0))
    messages = seconds = None
    note = outcome.reason
    if outcome.result is not None:
        each = outcome.result["per_epoch"]
        messages = each["messages_sent_mean"]
        up = each["bytes_sent_largest"] + device.header * each["messages_sent_largest"]
        down = each["bytes_received_largest"] + device.header * each["messages_received_largest"]
        seconds = each["rounds"] * device.latency + up / device.upload + down / device.download
        note = (
            "no trees, so nothing to trim; mean over the stages of training; largest traffic of "
            "any device, its computation left out"
        )
    return [
        bench.row(
            "cost", NAMES["strict"], measure, Scores.one(value, note), task=task, digits=digits
        )
        for measure, value, digits in ((MESSAGES_ALL, messages, 1), (SECONDS, seconds, 3))
    ]


BY_NAME: dict[str, Callable[[Bench], list[Row]]] = {
    "classification": lambda bench: comparison(bench, "classify"),
    "link-prediction": lambda bench: comparison(bench, "link"),
    "epsilon": epsilon,
    "ablation": ablation,
    "workload": workload,
    "cost": cost,
}


def cells_of(
    figures: Sequence[str], subject: Dataset, frozen: Frozen, profiles: tuple[str, ...]
) -> list[Cell]:
    """Every cell that the figures need, once, in the order in which they are asked for."""
    asked: dict[Cell, None] = {}

    def note(cell: Cell) -> CellOutcome:
        asked[cell] = None
        return CellOutcome()

    bench = Bench(subject=subject, frozen=frozen, ask=note, profiles=profiles)
    for figure in figures:
        BY_NAME[figure](bench)
    return list(asked)
