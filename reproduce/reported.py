"""What the paper reports in its evaluation (section VIII), number by number.

Its plots are not in the text that we have, so there are no absolute scores: only the differences
that the text names. "Loses 16.29 % accuracy" is read as percentage points, as is every figure that
the text does not call relative. `WHY` explains the rows of ours that disagree.
"""

from dataclasses import dataclass
from typing import Literal

from lumos.training.profile import PAPER, STRICT

FigureName = Literal["classification", "link-prediction", "epsilon", "ablation", "workload", "cost"]
CAPTIONS: dict[str, str] = {
    "classification": "Label classification accuracy",
    "link-prediction": "Link prediction ROC-AUC score",
    "epsilon": "Effect of privacy parameter ε",
    "ablation": "Accuracy contribution of each module in Lumos",
    "workload": "CDF of workload with and without tree trimming (TT)",
    "cost": "System performance contribution of tree trimming",
    "dense": "no such figure; few dense features instead of words, a case in the encoder's favour",
}
"""The captions of the paper's figures, in its order, and of one that it does not have."""

DATASETS = ("facebook", "lastfm")
ITERATIONS = {"facebook": 1000, "lastfm": 300}
"""MCMC iterations of the paper."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One number of the paper for each of its two graphs."""

    figure: FigureName
    measure: str
    """What is measured, as in `Row.measure`."""
    values: tuple[float, float]
    """Facebook, LastFM."""
    task: str = ""
    backbone: str = ""
    epsilon: float | None = None
    shown: str = "{:+.2f}"
    """How the number is written; `above {:g}` where the paper gives a bound."""

    def of(self, dataset: str) -> float | None:
        """The number for one of the paper's graphs."""
        return self.values[DATASETS.index(dataset)] if dataset in DATASETS else None


def _by_backbone(
    figure: FigureName, measure: str, task: str, gcn: tuple[float, float], gat: tuple[float, float]
) -> list[Claim]:
    return [
        Claim(figure=figure, measure=measure, task=task, backbone=name, epsilon=2.0, values=values)
        for name, values in (("gcn", gcn), ("gat", gat))
    ]


def _by_epsilon(task: str, *values: tuple[float, float]) -> list[Claim]:
    return [
        Claim(
            figure="epsilon",
            measure=RELATIVE_TO_HALF,
            task=task,
            backbone="gcn",
            epsilon=epsilon,
            values=pair,
        )
        for epsilon, pair in zip((1.0, 2.0, 4.0), values, strict=True)
    ]


def _of_cost(measure: str, classify: tuple[float, float], link: tuple[float, float]) -> list[Claim]:
    return [
        Claim(figure="cost", measure=measure, task=task, values=pair, shown="{:.2f}")
        for task, pair in (("classify", classify), ("link", link))
    ]


AGAINST_CENTRALIZED = "against centralized, points"
AGAINST_LPGNN = "against LPGNN, points"
AGAINST_NAIVE = "against naive FedGNN, relative %"
RELATIVE_TO_HALF = "against ε = 0.5, relative %"
OVER_STARS = "over no virtual nodes, points"
OVER_UNTRIMMED = "over no tree trimming, relative %"
LARGEST = "largest workload"
UNTRIMMED_LARGEST = "largest workload without trimming"
MESSAGES_SAVED = "messages per device and epoch saved, %"
TIME_SAVED = "epoch time saved, %"

CLAIMS: tuple[Claim, ...] = (
    *_by_backbone(
        "classification", AGAINST_CENTRALIZED, "classify", (-16.29, -14.73), (-16.30, -15.76)
    ),
    *_by_backbone("classification", AGAINST_LPGNN, "classify", (6.44, 12.26), (5.10, 7.62)),
    *_by_backbone("classification", AGAINST_NAIVE, "classify", (74.29, 52.85), (42.13, 32.62)),
    *_by_backbone("link-prediction", AGAINST_CENTRALIZED, "link", (-7.13, -3.60), (-9.12, -4.59)),
    *_by_backbone("link-prediction", AGAINST_NAIVE, "link", (22.94, 19.72), (22.03, 19.60)),
    *_by_epsilon("classify", (5.13, 9.24), (9.23, 14.85), (10.26, 16.82)),
    *_by_epsilon("link", (8.88, 9.59), (15.04, 16.37), (17.14, 18.93)),
    *_by_backbone("ablation", OVER_STARS, "classify", (13.73, 16.36), (13.10, 15.70)),
    *_by_backbone("ablation", OVER_STARS, "link", (8.26, 8.99), (8.36, 7.69)),
    *(
        Claim(
            figure="ablation",
            measure=OVER_UNTRIMMED,
            task=task,
            backbone=backbone,
            epsilon=2.0,
            values=(0.01, 0.01),
            shown="below {:g} either way",
        )
        for task in ("classify", "link")
        for backbone in ("gcn", "gat")
    ),
    Claim(figure="workload", measure=LARGEST, values=(39, 16), shown="{:g}"),
    Claim(figure="workload", measure=UNTRIMMED_LARGEST, values=(150, 100), shown="above {:g}"),
    *_of_cost(MESSAGES_SAVED, (34.19, 43.02), (27.34, 36.80)),
    *_of_cost(TIME_SAVED, (13.32, 36.38), (10.34, 10.90)),
)


def claim(
    figure: str, measure: str, task: str = "", backbone: str = "", epsilon: float | None = None
) -> Claim | None:
    """The paper's claim about a row, if it makes one."""
    wanted = (figure, measure, task, backbone, epsilon)
    return next(
        (
            one
            for one in CLAIMS
            if (one.figure, one.measure, one.task, one.backbone, one.epsilon) == wanted
        ),
        None,
    )


TOLERANCE = 2.0
"""A row disagrees with the paper where it is further off than so many points, % or branches."""

WHY: dict[tuple[str, str], str] = {
    (AGAINST_CENTRALIZED, PAPER): (
        "Most of the score comes from raw features: a device's own, and the embeddings of "
        "them that travel in the open. What released features add is told by the control; the "
        "figure of ε has rows with the paper's recovery as printed, where they harm."
    ),
    (AGAINST_CENTRALIZED, STRICT): (
        "Another design, so another loss: one randomized label per device and noisy "
        "sums. "
        "One randomized label survives ε = 2, thousands of noisy words do not."
    ),
    (AGAINST_CENTRALIZED, f"{STRICT} link"): (
        "Another design: an embedding of a device's words is learnt by noisy sums, and two devices "
        "learn one level of their score; nothing is released. Rows of both backbones compare the "
        "same run."
    ),
    (AGAINST_LPGNN, PAPER): (
        "The comparison is between different secrets: LPGNN hides features and labels from a "
        "server that knows all edges, this profile uses raw features and labels at home and "
        "sends embeddings of them in the open."
    ),
    (AGAINST_LPGNN, STRICT): (
        "Both randomize a label once: here at ε = 2, in LPGNN at ε_y = 1. LPGNN also releases "
        "noisy features of everybody (ε_x = 2) to a server that knows all edges; in the strict "
        "profile features are in noisy sums only, and nobody knows the edges."
    ),
    (AGAINST_NAIVE, PAPER): (
        "The size of the gain is that of the baseline's failure: naive FedGNN drowns in tens of "
        "millions of false edges and comes out near the most frequent class, and how near "
        "depends on details that the paper does not give (δ, calibration, which labels are "
        "noised)."
    ),
    (AGAINST_NAIVE, STRICT): (
        "The size of the gain is that of the baseline's failure: naive FedGNN drowns in tens of "
        "millions of false edges, and the paper does not give its details (δ, calibration)."
    ),
    (AGAINST_NAIVE, f"{STRICT} link"): (
        "The size of the gain is that of the baseline's failure: naive FedGNN drowns in tens of "
        "millions of false edges, and the paper does not give its details (δ, calibration)."
    ),
    (RELATIVE_TO_HALF, PAPER): (
        "We shrink a recovered feature by its reliability, tanh²(ε'/2), where ε' is the ε of one "
        "element; with thousands of words that is near 0 for every ε of the table, so releases "
        "neither help nor harm. The score comes from what travels in the open."
    ),
    (RELATIVE_TO_HALF, "literal"): (
        "As printed, recovered features carry noise whose size falls as 1/ε, and missing ones "
        "stand at the midpoint. A larger ε means less noise; where there is a control, whose "
        "releases carry no information under the same noise, the gain over it is information."
    ),
    (RELATIVE_TO_HALF, STRICT): (
        "ε covers the label, in randomized label and sums: at ε = 0.5 the local classifier "
        "learns from labels that are nearly noise, so more is gained than in the paper, whose ε "
        "covers none."
    ),
    (OVER_STARS, PAPER): (
        "With two layers a leaf of a tree hears its own branch only, one of a star hears the "
        "whole ego network, so virtual nodes do not enlarge what is seen; and since recovered "
        "features are shrunk by their reliability, there is little noise to keep apart."
    ),
    (OVER_STARS, "literal"): (
        "As printed, neighbours' leaves are mostly noise. A star averages that of the whole ego "
        "network; a tree of two layers leaves each leaf alone with its own, so virtual nodes cost."
    ),
    (OVER_UNTRIMMED, PAPER): (
        "Trimming changes how many leaves a device pools: without it, both ends of every edge have "
        "a leaf for the other, half as many again as after mcmc, and each is an embedding of raw "
        "features in the open. And 0.01 % is less than one test device of Facebook: no two runs "
        "with different trees agree so far."
    ),
    (LARGEST, PAPER): (
        "Algorithms 1 to 3 as printed need far more iterations (39 after 50,000 on Facebook, "
        "17 after 15,000 on LastFM); `optimal` proves what is least."
    ),
    (LARGEST, "optimal"): (
        "The least possible, with a certificate; the paper's figure is above it."
    ),
    (UNTRIMMED_LARGEST, "none"): ("Largest degree of the graph; the paper says a bound only."),
    (MESSAGES_SAVED, "classify"): (
        "Messages of leaves and their gradients: 1 - Σ workload / 2·edges. It is 50 % as soon "
        "as every edge is carried once, and less where Algorithm 1 leaves edges in both trees."
    ),
    (MESSAGES_SAVED, "link"): (
        "Here a device asks its kept neighbours and as many non-neighbours, so these messages "
        "shrink "
        "with the workload too; only those of validation pairs do not."
    ),
    (TIME_SAVED, "classify"): (
        "The paper's is time of a simulation on one GPU. Here it is the slowest device of every "
        "round under a stated model: a vertex of high degree still receives a leaf from every "
        "neighbour and answers it, whoever carries the edge, and the sum of updates costs the "
        "same with any tree."
    ),
    (TIME_SAVED, "link"): (
        "The paper's is time of a simulation on one GPU. Here it is the slowest device of every "
        "round under a stated model: embeddings are asked for by many whatever the trees, and "
        "the sum of updates costs the same with any tree."
    ),
}
"""Why a row of ours may differ from the paper's, by measure and by profile, balancer or task."""


def disagrees(number: Claim, dataset: str, ours: float) -> bool:
    """Whether our figure is off the paper's by more than `TOLERANCE`, or beyond its bound."""
    theirs = number.of(dataset)
    if theirs is None:
        return False
    if number.shown.startswith("above"):
        return ours <= theirs
    if number.shown.startswith("below"):
        return abs(ours) > theirs
    return abs(ours - theirs) > TOLERANCE
