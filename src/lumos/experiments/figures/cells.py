"""The cells of the evaluation: which run, with which settings, stands behind a figure."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.device_model import DeviceModel
from lumos.experiments.figures.names import (
    EVALUATED_BALANCERS,
    LETTER,
    ONE_SCORE,
    TRUE_LABELS,
    VARIANT_PROFILES,
)
from lumos.experiments.settings import EvaluationSettings
from lumos.training.profile import PAPER, STRICT

ABLATIONS: dict[str, dict[str, Any]] = {
    "stars": {"virtual_nodes": False},
    "untrimmed": {"balancer": "none"},
}
"""By what is taken away (virtual nodes, trimming): the settings that do so."""


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Cells of one graph with the frozen settings."""

    dataset: Dataset
    settings: EvaluationSettings

    @property
    def iterations(self) -> int:
        """MCMC iterations on this graph."""
        return self.settings.iterations(self.dataset.paper_name)

    def train(self, variant: str, task: str, backbone: str, epsilon: float, seed: int) -> Cell:
        """A run of Lumos; `variant` is a profile, or one of `VARIANT_PROFILES`.

        Those of `ONE_SCORE` are the same run for any backbone and ε.
        """
        profile = VARIANT_PROFILES.get(variant, variant)
        if (profile, task) in ONE_SCORE:
            control = seed < self.settings.control_seeds[profile]["gcn"]
            settings = {"profile": profile, "task": task, "control": control}
            return Cell.of("train", self.dataset.spec, seed, **settings)
        control = self.settings.control(profile, task, backbone, epsilon, seed)
        return self._train(variant, task, backbone, epsilon, seed, control=control)

    def ablated(self, ablation: str, variant: str, task: str, backbone: str, seed: int) -> Cell:
        """A run of the paper's profile without one of its modules, at ε = 2."""
        changed = ABLATIONS[ablation]
        return self._train(variant, task, backbone, 2.0, seed, control=False, **changed)

    def _train(
        self, variant: str, task: str, backbone: str, epsilon: float, seed: int, **changed: Any
    ) -> Cell:
        profile = VARIANT_PROFILES.get(variant, variant)
        settings: dict[str, Any] = {
            "profile": profile,
            "task": task,
            "backbone": backbone,
            "epsilon": epsilon,
        }
        if profile in self.settings.epochs:
            settings["epochs"] = self.settings.epochs_of(profile, backbone)
            settings["patience"] = self.settings.patience
        if profile == PAPER:
            settings |= {"compare": "ideal", "floor": False, "balancer": "mcmc"}
            settings |= {"recovery": "letter"} if variant == LETTER else {}
        if profile == STRICT and task == "classify":  # where a backbone is part of it by choice
            settings["tree_network"] = True
        settings |= {"label_epsilon": math.inf} if variant == TRUE_LABELS else {}
        settings |= changed
        if settings.get("balancer") == "mcmc":
            settings["iterations"] = self.iterations
        return Cell.of("train", self.dataset.spec, seed, **settings)

    def baseline(
        self, system: str, task: str, backbone: str, seed: int, epsilon: float = 2.0
    ) -> Cell:
        """A run of a system that Lumos is compared with."""
        settings: dict[str, Any] = {
            "system": system,
            "task": task,
            "epochs": self.settings.epochs["baseline"][backbone],
            "patience": self.settings.patience,
        }
        if system != "own":
            settings["backbone"] = backbone
        if system in ("lpgnn", "naive"):
            settings["epsilon"] = epsilon
        if system == "lpgnn":
            settings["label_epsilon"] = self.settings.label_epsilon
        settings |= self.settings.baseline_settings(system, backbone)
        if self.settings.asked_epochs is not None:
            settings["epochs"] = self.settings.asked_epochs
        return Cell.of("baseline", self.dataset.spec, seed, **settings)

    def trees(self, balancer: str) -> Cell:
        """Trees of one balancer."""
        settings: dict[str, Any] = {"balancer": balancer, "compare": "ideal"}
        if balancer == "mcmc":
            settings["iterations"] = self.iterations
        return Cell.of("trees", self.dataset.spec, **settings)

    def cost(self, task: str) -> Cell:
        """Messages and simulated seconds of an epoch of the paper's profile, for all balancers."""
        return Cell.of(
            "cost",
            self.dataset.spec,
            task=task,
            balancers=EVALUATED_BALANCERS,
            iterations=self.iterations,
            epochs=self.settings.cost_epochs,
            device=tuple(sorted(asdict(DeviceModel()).items())),
        )
