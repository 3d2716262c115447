"""Adam (Kingma & Ba 2015) on one flat vector: every device runs it and ends with equal weights."""

from dataclasses import dataclass, field

import numpy as np

from lumos.typing import Arrays, Doubles


@dataclass(eq=False)
class Adam:
    """Weights and their moments. All devices start alike and see the same sums."""

    weights: Doubles = field(repr=False)
    rate: float
    decay: float = 0.0
    """L2: this share of each weight is added to its gradient, as in `torch.optim.Adam`."""
    mean: Doubles = field(repr=False, default_factory=lambda: np.empty(0))
    square: Doubles = field(repr=False, default_factory=lambda: np.empty(0))
    steps: int = 0

    BETAS = (0.9, 0.999)
    EPS = 1e-8

    def __post_init__(self) -> None:
        if not len(self.mean):
            self.mean = np.zeros_like(self.weights)
            self.square = np.zeros_like(self.weights)

    def state_dict(self, name: str) -> Arrays:
        """Weights, moments and number of steps, under names that begin with `name`."""
        return {
            f"{name}/weights": self.weights,
            f"{name}/mean": self.mean,
            f"{name}/square": self.square,
            f"{name}/steps": np.array(self.steps),
        }

    def load_state_dict(self, state: Arrays, name: str) -> None:
        """Go on from what `state_dict` returned."""
        self.weights, self.mean = state[f"{name}/weights"], state[f"{name}/mean"]
        self.square, self.steps = state[f"{name}/square"], int(state[f"{name}/steps"])

    def step(self, gradient: Doubles) -> None:
        """One step down the gradient."""
        if self.decay:
            gradient = gradient + self.decay * self.weights
        first, second = self.BETAS
        self.steps += 1
        self.mean = first * self.mean + (1 - first) * gradient
        self.square = second * self.square + (1 - second) * gradient**2
        root = np.sqrt(self.square / (1 - second**self.steps)) + self.EPS
        self.weights = self.weights - self.rate / (1 - first**self.steps) * self.mean / root
