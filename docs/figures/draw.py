"""The pictures of the README and of docs/: `make figures` draws all of them.

    python docs/figures/draw.py [FOLDER]

Numbers of the strict profile (ε, δ, sums) are its defaults, read from the package. A coordinate is
a pixel, from the top left corner. Text stays text, in a generic font. Every picture is a white
panel, so it reads on light and dark pages. Protected messages are solid and blue, unprotected ones
dashed and red.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Polygon, Rectangle

from lumos.exchange.messages import Door
from lumos.paper.profile import PaperSettings
from lumos.strict.classify.stages import (
    EVIDENCE_WEIGHTS,
    PROPAGATED,
    RANDOMIZED,
    ClassifySchedule,
)
from lumos.strict.settings import StrictSettings
from lumos.training.config import Config

INK, MUTED, LINE, WHITE = "#1f2933", "#4b5864", "#b8c0c9", "#ffffff"
BLUE, RED, GREEN = "#0067a3", "#b3261e", "#00694f"
PALE = {BLUE: "#e6f1f8", RED: "#fbeae8", GREEN: "#e4f2ee", MUTED: "#f3f5f7"}
TEXT, HEADING, TITLE = 13.5, 15.0, 18.0
WIDTH, MARGIN, STEP = 460.0, 22.0, 20.0
"""Width of a picture that a phone shows, its margin, and the distance between lines of text."""
PAPER = PaperSettings()
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lumos",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "text.color": INK,
}


class Canvas:
    """A white panel to draw on.

    Args:
        width, height: in pixels.
    """

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure((width / 72, height / 72))
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(height, 0)
        self.left = 0.0
        self.box(1, 1, width - 2, height - 2, WHITE, LINE, corner=14)

    def text(self, x: float, y: float, words: str, **style: Any) -> None:
        """Write a line; `y` is the middle of its height."""
        style = {"fontsize": TEXT, "zorder": 4, **style}
        # On the baseline, so that no coordinate depends on the metrics of a font.
        self.axes.text(self.left + x, y + 0.35 * style["fontsize"], words, **style)

    def lines(self, x: float, y: float, words: Sequence[str], **style: Any) -> None:
        """Write lines below each other."""
        for number, line in enumerate(words):
            self.text(x, y + STEP * number, line, **style)

    def title(self, words: str, below: str) -> None:
        """Write the heading."""
        self.text(MARGIN, 28, words, fontsize=TITLE, weight="bold")
        self.text(MARGIN, 54, below, color=MUTED)

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, edge: str, **style: Any
    ) -> None:
        """Draw a rounded rectangle."""
        shape = f"round,pad=0,rounding_size={style.pop('corner', 8):g}"
        style = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.3, "zorder": 0, **style}
        self.axes.add_patch(FancyBboxPatch((self.left + x, y), w, h, shape, **style))

    def line(self, x: Sequence[float], y: Sequence[float], **style: Any) -> None:
        """Draw a line through points."""
        style = {"color": MUTED, "linewidth": 1.8, "zorder": 1, **style}
        self.axes.plot([self.left + value for value in x], y, **style)

    def rule(self, y: float, **style: Any) -> None:
        """Draw a thin line across the panel."""
        self.line([MARGIN, WIDTH - MARGIN], [y, y], **{"color": LINE, "linewidth": 1.2, **style})

    def arrow(
        self, x: float, y: float, to_x: float, to_y: float, colour: str, *, open: bool = False
    ) -> None:
        """Draw an arrow, across or down; dashed if the message is unprotected."""
        across = (to_x > x) - (to_x < x)
        down = (to_y > y) - (to_y < y)
        neck_x, neck_y = to_x - 11 * across, to_y - 11 * down
        dashes: Any = (0, (3, 1.6)) if open else "solid"
        self.line([x, neck_x], [y, neck_y], color=colour, linewidth=2.4, linestyle=dashes, zorder=2)
        tip = (self.left + to_x, to_y)
        sides = [
            (self.left + neck_x + 6 * side * down, neck_y + 6 * side * across) for side in (-1, 1)
        ]
        self.axes.add_patch(Polygon([tip, *sides], color=colour, linewidth=0, zorder=2))

    def disc(self, x: float, y: float, r: float, fill: str, edge: str) -> None:
        """Draw a disc."""
        style: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": 1.8}
        self.axes.add_patch(Circle((self.left + x, y), r, zorder=3, **style))

    def mark(self, x: float, y: float, *, protected: bool) -> None:
        """Draw the sign of what is guaranteed, or of what is not."""
        if protected:
            self.disc(x, y, 4, BLUE, BLUE)
        else:
            left, right = self.left + x - 5, self.left + x + 5
            corners = [(left, y + 4), (right, y + 4), (self.left + x, y - 5)]
            self.axes.add_patch(Polygon(corners, color=RED, zorder=3))

    def device(self, x: float, y: float, name: str, size: float = 17) -> None:
        """Draw a device: u is a disc, all others are squares."""
        if name == "u":
            self.disc(x, y, size, BLUE, BLUE)
        else:
            corner, width = (self.left + x - size + 2, y - size + 2), 2 * size - 4
            self.axes.add_patch(Rectangle(corner, width, width, facecolor=GREEN, zorder=3))
        self.text(x, y, name, fontsize=size - 2, color=WHITE, ha="center", weight="bold")


# The tree: section V-A and figure 2 of the paper; `lumos.trees.forest`.


def draw_tree(canvas: Canvas) -> None:
    """Draw the ego network of a device, and its tree."""
    canvas.title("The tree of a device", "Device u owns three of its four edges.")
    u, around = (230, 130), {"v₁": (95, 100), "v₂": (95, 170), "v₃": (365, 170), "v₄": (365, 100)}
    for name, (x, y) in around.items():
        style: dict[str, Any] = {"linewidth": 3}
        if name == "v₄":
            style = {"linestyle": (0, (2, 2))}
        canvas.line([u[0], x], [u[1], y], **style)
        canvas.device(x, y, name)
    canvas.device(*u, "u", 20)
    canvas.text(372, 135, "owned by v₄", ha="center", color=MUTED)
    canvas.rule(220)
    root = (230, 266)
    for x, name in ((86, "v₁"), (230, "v₂"), (374, "v₃")):
        canvas.line([root[0], x], [root[1], 340])
        for side, leaf in ((-34, "u"), (34, name)):
            canvas.line([x, x + side], [340, 414])
            canvas.device(x + side, 414, leaf)
        canvas.disc(x, 340, 14, WHITE, MUTED)
    canvas.disc(*root, 16, WHITE, MUTED)
    canvas.text(256, 262, "root", color=MUTED)
    meanings = [
        ("u", "Leaf of u itself:", "its raw features, without noise."),
        (
            "v",
            "Leaf of a neighbour: the LDP features",
            f"that it sent to u, ε = {PAPER.epsilon:g} for one receiver.",
        ),
        ("", "Virtual node, starts at 0: the root, and", "a parent for each edge that u owns."),
    ]
    for number, (name, *words) in enumerate(meanings):
        y = 476 + 54 * number
        canvas.box(MARGIN, y - 23, WIDTH - 2 * MARGIN, 46, PALE[MUTED], PALE[MUTED])
        if name:
            canvas.device(46, y, name, 14)
        else:
            canvas.disc(46, y, 12, WHITE, MUTED)
        canvas.lines(72, y - STEP / 2, words)
    ends = [
        "Three branches: u has workload 3. The fourth",
        "edge gives u a leaf in the tree of v₄.",
    ]
    canvas.lines(MARGIN, 634, ends, color=MUTED)


# One epoch of the paper: section VI; `lumos.paper.trainer`.


def draw_epoch(canvas: Canvas) -> None:
    """Draw who sends what in one epoch."""
    canvas.title("An epoch of the paper", "The tree of device u has a leaf for its neighbour v.")
    lanes = {"u": 62.0, "v": 250.0, "coordinator": 384.0}
    for x in lanes.values():
        canvas.line([x, x], [110, 550], color=LINE, linewidth=1.4)
    canvas.device(lanes["u"], 94, "u", 18)
    canvas.device(lanes["v"], 94, "v", 18)
    canvas.box(326, 78, 116, 32, PALE[MUTED], MUTED)
    canvas.text(lanes["coordinator"], 94, "coordinator", ha="center")

    def message(
        y: float, start: str, end: str, words: str, below: str = "", *, open: bool = False
    ) -> None:
        colour = RED if open else BLUE
        canvas.arrow(lanes[start], y, lanes[end], y, colour, open=open)
        middle = (lanes[start] + lanes[end]) / 2
        canvas.box(middle - 4 * len(words), y - 26, 8 * len(words), 22, WHITE, WHITE, zorder=1.5)
        canvas.text(middle, y - 15, words, ha="center", color=colour)
        canvas.text(middle, y + 16, below, ha="center", color=colour)

    def work(lane: str, y: float, width: float, words: Sequence[str]) -> None:
        x, height = lanes[lane], 12 + STEP * len(words)
        canvas.box(x - width / 2, y, width, height, WHITE, MUTED, zorder=2)
        canvas.lines(x, y + 16, words, ha="center")

    message(156, "v", "u", f"LDP features, ε = {PAPER.epsilon:g}")
    canvas.text(264, 156, "once in a run", color=MUTED)
    canvas.rule(180, linestyle=(0, (2, 3)))
    canvas.text(264, 202, "in every epoch", color=MUTED)
    work("u", 198, 76, ["GNN on", "its tree"])
    message(280, "u", "v", "embedding of leaf v", "from raw features of u", open=True)
    work("v", 310, 154, ["POOL of its leaves,", "loss by its label"])
    message(392, "v", "u", "gradient of leaf v", "shows the label of v", open=True)
    work("u", 422, 76, ["update"])
    work("v", 422, 76, ["update"])
    canvas.arrow(lanes["v"], 466, lanes["coordinator"], 466, BLUE)
    message(496, "u", "coordinator", "masked: only the sum is seen")
    message(536, "coordinator", "u", "sum of all updates, without noise", open=True)
    step = [
        "Then all devices take the same step of Adam. In the",
        "paper they share losses; masked sums are ours.",
    ]
    canvas.lines(MARGIN, 570, step, color=MUTED)
    canvas.arrow(MARGIN, 618, 66, 618, BLUE)
    canvas.text(74, 618, "protected")
    canvas.arrow(174, 618, 218, 618, RED, open=True)
    canvas.text(226, 618, "unprotected")
    links = ["Links: embeddings go to non-neighbours too, and", "gradients come back, unprotected."]
    canvas.lines(MARGIN, 644, links, color=RED)


# The strict profile, classification: docs/strict.md; `lumos.strict.classify.stages`.


def strict_defaults() -> tuple[StrictSettings, dict[str, int]]:
    """Return the default settings, and the number of sums of each stage on demo."""
    config = Config.of(profile="strict")
    schedule = ClassifySchedule(
        config=config, devices=2000, training=1000, validation=500, classes=6
    )
    return schedule.strict, {stage.name: stage.num_sums for stage in schedule.stages}


def pair(epsilon: float, delta: float) -> str:
    """Return (ε, δ) for a δ that is a power of ten."""
    power = str(round(math.log10(delta))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"({epsilon:g}, 10{power})"


def draw_strict(canvas: Canvas) -> None:
    """Draw the stages of strict classification, and what leaves a device in each."""
    strict, sums = strict_defaults()
    label = f"ε = {strict.label_epsilon:g}"
    features = pair(strict.feature_epsilon, strict.delta)
    learnt = sums["counts"] + sums["encoder"]
    chosen = sums["selection"] + sums["temperature"]
    canvas.title("The strict profile", "Stages of classification, and what leaves a device")
    stages: list[tuple[str, str, dict[str, str]]] = [
        (
            "Randomize the label, once",
            "Training and validation devices; all later stages",
            {f"use only the randomized label ({label}).": ""},
        ),
        (
            "Local classifier",
            "From own features to the class, without neighbours",
            {f"{learnt} sums; features {features}": BLUE},
        ),
        (
            "Randomized labels",
            "What labels of neighbours tell about the class",
            {f"label of a training device, {label}": GREEN, f"{sums[RANDOMIZED]} sum": BLUE},
        ),
        (
            "Propagated labels",
            "Labels reach devices that are further away",
            {
                f"in {sums[PROPAGATED]} rounds, the class that received labels": GREEN,
                f"point to, ε = {strict.propagated_epsilon:g} each, about edges": "",
                f"{sums[PROPAGATED]} sums of validation devices": BLUE,
            },
        ),
        (
            "Evidence weights",
            "How much own features and received labels count",
            {f"{sums[EVIDENCE_WEIGHTS]} sums of validation devices": BLUE},
        ),
        (
            "Private model selection",
            "Local model or neighbours? And how sure is it?",
            {f"{chosen} sums of validation devices": BLUE},
        ),
        (
            "Prediction at home",
            "From own features and received labels. Nothing",
            {"leaves the device.": ""},
        ),
    ]
    y = 78.0
    for number, (name, what, leaving) in enumerate(stages, 1):
        height = 60 + STEP * len(leaving)
        canvas.box(MARGIN, y, WIDTH - 2 * MARGIN, height, PALE[MUTED], LINE)
        canvas.text(36, y + 20, f"{number}  {name}", fontsize=HEADING, weight="bold")
        canvas.text(36, y + 43, what, color=MUTED)
        for line, (words, colour) in enumerate(leaving.items()):
            at = y + 43 + STEP * (1 + line)
            home = not any(leaving.values())
            if colour:
                canvas.arrow(36, at, 64, at, colour)
            canvas.text(36 if home else 72, at, words, color=MUTED if home else colour or GREEN)
        y += height
        if number < len(stages):
            canvas.arrow(230, y, 230, y + 18, MUTED)
        y += 18
    canvas.arrow(MARGIN, y + 12, 50, y + 12, GREEN)
    canvas.text(58, y + 12, "to all neighbours, the same to each", color=GREEN)
    canvas.arrow(MARGIN, y + 36, 50, y + 36, BLUE)
    canvas.text(58, y + 36, "to the coordinator: masked, and with noise", color=BLUE)
    few = (
        "Numbers: graph demo. Where labels are few, all",
        "devices add to sums, and those that do not train",
        "send all neighbours one predicted label.",
    )
    for line, words in enumerate(few):
        canvas.text(MARGIN, y + 60 + STEP * line, words, color=MUTED)


# Who sees what: docs/privacy.md; the topics of `lumos.paper.messages`, `lumos.strict.messages`.


def draw_who(canvas: Canvas) -> None:
    """Draw what each participant sees in both profiles."""
    strict, _ = strict_defaults()
    label, features = strict.label_epsilon, pair(strict.feature_epsilon, strict.delta)
    sums = [f"+noisy sums: label ε = {label:g},", f"features {features}"]
    exact = "-exact sums of all updates"
    seen: dict[str, tuple[list[str], list[str]]] = {
        "Every device": (
            [exact, "-links: embeddings of raw", "features, if it asks"],
            [*sums, "-links: score buckets,", f"at most {strict.score_queries} answers each"],
        ),
        "A neighbour, in addition": (
            [
                f"+LDP features, ε = {PAPER.epsilon:g}",
                "-embeddings of raw features",
                "-gradients: they show the",
                "label, hint at the degree",
                "-answers about degree and",
                "workload (comparisons)",
            ],
            [
                f"+a randomized label, ε = {label:g}",
                "+1 to 3 propagated labels,",
                f"ε = {strict.propagated_epsilon:g} each, about edges",
                "+few labels: a predicted",
                f"label, features ε = {strict.feature_epsilon / 2:g}",
                "-hints at the degree",
            ],
        ),
        "The coordinator": ([exact, "-who is busiest, in each step", "of MCMC"], sums),
        "The network (whoever carries the messages)": (
            ["+contents are sealed", "-edges, degrees, and which", "end owns an edge"],
            ["+contents are sealed", "-edges and degrees"],
        ),
    }
    canvas.title("Who sees what", "The model itself is public in both profiles.")
    columns, y = (MARGIN, 242.0), 86.0
    for x, name in zip(columns, ("paper", "strict"), strict=True):
        canvas.text(x, y, name, fontsize=HEADING, weight="bold")
    y += 18
    for who, parts in seen.items():
        canvas.box(MARGIN, y, WIDTH - 2 * MARGIN, 26, PALE[MUTED], PALE[MUTED])
        canvas.text(MARGIN + 8, y + 13, who, weight="bold")
        for x, words in zip(columns, parts, strict=True):
            protects = False
            for number, line in enumerate(words):
                at = y + 42 + STEP * number
                if line[0] in "+-":
                    protects = line[0] == "+"
                    canvas.mark(x + 5, at, protected=protects)
                colour = BLUE if protects else RED
                canvas.text(x + 16, at, line.lstrip("+-"), color=colour)
        y += 44 + STEP * max(map(len, parts))
    canvas.rule(y)
    canvas.mark(MARGIN + 5, y + 20, protected=True)
    canvas.mark(MARGIN + 5, y + 40, protected=False)
    canvas.lines(MARGIN + 16, y + 20, ["guaranteed: encryption, ε or (ε, δ)", "not guaranteed"])


# The architecture: docs/architecture.md; `lumos.exchange.messages.Door`.


def draw_architecture(canvas: Canvas) -> None:
    """Draw devices, the doors that messages leave through, and what moves them."""
    canvas.title("How Lumos is built", "Devices keep their data; messages are counted.")
    canvas.box(MARGIN, 76, WIDTH - 2 * MARGIN, 116, PALE[MUTED], LINE)
    places = {"u": (110, 134), "v": (52, 106), "w": (52, 164), "x": (168, 106), "y": (168, 164)}
    for name, (x, y) in places.items():
        canvas.line([110, x], [134, y])
        canvas.device(x, y, name, 14 if name != "u" else 17)
    canvas.line([168, 168], [106, 164])
    canvas.text(204, 96, "A device is one vertex", fontsize=HEADING, weight="bold")
    canvas.lines(
        204,
        122,
        ["It keeps its own features,", "its own label, and the", "list of its neighbours."],
    )
    canvas.arrow(230, 192, 230, 212, MUTED)
    canvas.box(MARGIN, 212, WIDTH - 2 * MARGIN, 210, WHITE, LINE)
    canvas.text(36, 234, "Five doors", fontsize=HEADING, weight="bold")
    doors = [
        (Door.RELEASE, "randomized first; ε is counted", BLUE),
        (Door.AGGREGATE, "masked; only the sum is seen", BLUE),
        (Door.COMPARE, "two devices learn one answer", BLUE),
        (Door.CONTROL, "declared words; bits are counted", BLUE),
        (Door.OPEN, "no protection: off in strict runs", RED),
    ]
    for number, (door, about, colour) in enumerate(doors):
        at = 264 + 24 * number
        canvas.mark(42, at, protected=colour == BLUE)
        canvas.text(56, at, door.value, weight="bold", color=colour)
        canvas.text(146, at, about)
    canvas.box(36, 380, WIDTH - 72, 32, PALE[MUTED], PALE[MUTED])
    canvas.text(48, 396, "Ledger", weight="bold")
    canvas.text(112, 396, "counts messages, bytes, bits and ε")
    canvas.arrow(230, 422, 230, 442, MUTED)
    canvas.box(MARGIN, 442, WIDTH - 2 * MARGIN, 118, PALE[MUTED], LINE)
    canvas.text(36, 464, "One program, two ways to run it", fontsize=HEADING, weight="bold")
    ways = [
        ("Simulated", ["all devices in one", "process, or in many"]),
        ("Real devices", ["a process for each,", "sealed, over NATS"]),
    ]
    ends = [
        ("Neighbours", ["receive randomized", "labels or features"]),
        ("Coordinator", ["opens sums, never the", "vector of one device"]),
    ]
    for left, (name, words) in zip((36.0, 242.0), ways, strict=True):
        canvas.text(left, 492, name, weight="bold")
        canvas.lines(left, 516, words)
    for left, (name, words) in zip((MARGIN, 234), ends, strict=True):
        canvas.arrow(left + 102, 560, left + 102, 580, MUTED)
        canvas.box(left, 580, 204, 84, WHITE, LINE)
        canvas.text(left + 14, 601, name, fontsize=HEADING, weight="bold")
        canvas.lines(left + 14, 626, words)


def draw_lumos(canvas: Canvas) -> None:
    """Draw the tree, and beside it the epoch."""
    draw_tree(canvas)
    canvas.left = 440
    draw_epoch(canvas)


# Workloads of Facebook: committed results of `make reproduce`, figure `workload`.

BALANCERS = (
    ("none", "every device owns all its edges", "#8a5a00"),
    ("greedy", "greedy (Algorithm 1)", GREEN),
    ("mcmc", "MCMC, 1,000 steps", RED),
    ("optimal", "optimal, the proven minimum", BLUE),
)


def draw_workloads(canvas: Canvas) -> None:
    """Draw the share of devices whose workload is above a number, for every balancer."""
    results = Path(__file__).parents[1] / "results" / "reproduce-structure.json"
    runs = {
        run["settings"]["balancer"]: run["result"]
        for run in json.loads(results.read_text("utf-8"))
        if (run["kind"], run["graph"]) == ("trees", "facebook")
    }
    left, right, top, bottom = 74.0, WIDTH - MARGIN - 16, 200.0, 420.0

    def across(workload: float) -> float:
        return left + (right - left) * math.log10(workload) / 3

    def down(share: float) -> float:
        return top - (bottom - top) * math.log10(share) / math.log10(22_470)

    canvas.title("Workloads on Facebook", "Share of devices with a larger workload, by balancer")
    for row, (balancer, name, colour) in enumerate(BALANCERS):
        canvas.line([MARGIN, MARGIN + 26], [86 + 24 * row] * 2, color=colour, linewidth=3)
        words = f"{name}: largest {runs[balancer]['max_workload']}"
        canvas.text(MARGIN + 36, 86 + 24 * row, words)
    for workload in (1, 10, 100, 1000):
        canvas.line([across(workload)] * 2, [top, bottom], color=LINE, linewidth=0.8)
        canvas.text(across(workload), bottom + 16, f"{workload:,}", ha="center", color=MUTED)
    for share in (1, 0.1, 0.01, 0.001):
        canvas.line([left, right], [down(share)] * 2, color=LINE, linewidth=0.8)
        canvas.text(left - 8, down(share), f"{100 * share:g} %", ha="right", color=MUTED)
    for balancer, _, colour in BALANCERS:
        cdf = [(workload, count) for workload, count in runs[balancer]["cdf"] if workload > 0]
        x, y = [across(1)], [down(1)]
        for workload, count in cdf[:-1]:
            x += [across(workload)] * 2
            y += [y[-1], down(1 - count / 22_470)]
        x += [across(cdf[-1][0])] * 2
        canvas.line(x, [*y, y[-1], bottom], color=colour, linewidth=2.2)
    canvas.text(left, bottom + 42, "workload: edges that a device owns", color=MUTED)


PICTURES: dict[str, tuple[float, float, Callable[[Canvas], None]]] = {
    "tree": (WIDTH, 682, draw_tree),
    "epoch": (WIDTH, 682, draw_epoch),
    "lumos": (WIDTH + 440, 682, draw_lumos),
    "strict": (WIDTH, 958, draw_strict),
    "who-sees-what": (WIDTH, 664, draw_who),
    "architecture": (WIDTH, 684, draw_architecture),
    "facebook-workloads": (WIDTH, 486, draw_workloads),
}


@contextmanager
def style() -> Iterator[None]:
    """Set matplotlib to the style of the pictures, whatever the user's is."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def picture(name: str) -> Figure:
    """Return one picture."""
    width, height, drawing = PICTURES[name]
    canvas = Canvas(width, height)
    drawing(canvas)
    return canvas.figure


def draw(folder: Path) -> None:
    """Write all pictures."""
    for name in PICTURES:
        path = folder / f"{name}.svg"
        with style():
            picture(name).savefig(path, metadata={"Date": None, "Creator": None}, transparent=True)
        text = path.read_text("utf-8")
        text = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', text)  # points to pixels
        text = text.replace("'DejaVu Sans'", "'DejaVu Sans', Helvetica, Arial, sans-serif")
        path.write_text(re.sub(r" +$", "", text, flags=re.MULTILINE), "utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
