"""The whole model: the network on trees, the attention of POOL, the head. One flat vector."""

import numpy as np
import torch
from torch import Tensor

from lumos.errors import InputError
from lumos.model.network import TreeNetwork
from lumos.model.settings import ModelSettings
from lumos.typing import Arrays, Doubles


class FullModel(torch.nn.Module):
    """What is trained. Parameters in this order: attention of POOL if there is one, network, head.

    Args:
        settings: of the network.
        features: d.
        classes: outputs of the linear head; 0 without a head (link).
    """

    def __init__(self, settings: ModelSettings, features: int, classes: int) -> None:
        super().__init__()
        self.network = TreeNetwork(settings, features)
        self.attention: torch.nn.Parameter | None = None
        if settings.pool == "attention":
            self.attention = torch.nn.Parameter(torch.zeros(settings.output))
        self.head = torch.nn.Linear(settings.output, classes) if classes else None

    def initialise(self, generator: np.random.Generator) -> None:
        """Weights from public coins; attention starts as the average."""
        self.network.initialise(generator)
        if self.head is not None:
            outputs, inputs = self.head.weight.shape
            reach = float(np.sqrt(6 / (inputs + outputs)))
            values = generator.uniform(-reach, reach, (outputs, inputs)).astype(np.float32)
            with torch.no_grad():
                self.head.weight.copy_(torch.from_numpy(values))
                self.head.bias.zero_()

    def vector(self) -> Doubles:
        """[weights] all parameters."""
        flat = torch.nn.utils.parameters_to_vector(self.parameters())
        return flat.detach().numpy().astype(np.float64)

    def load(self, vector: Doubles) -> None:
        """Set all parameters from a vector."""
        flat = torch.from_numpy(vector.astype(np.float32))
        torch.nn.utils.vector_to_parameters(flat, self.parameters())

    def take(self, weights: Arrays) -> None:
        """Set all parameters by name.

        Raises:
            InputError: they are not those of this model.
        """
        shapes = {name: tuple(value.shape) for name, value in self.named_parameters()}
        numbers = all(array.dtype == np.float32 for array in weights.values())
        if not numbers or shapes != {name: array.shape for name, array in weights.items()}:
            raise InputError("the weights are not of the model that the settings describe")
        with torch.no_grad():
            for name, value in self.named_parameters():
                value.copy_(torch.from_numpy(weights[name]))

    def logits(self, embedding: Tensor) -> Tensor:
        """[devices, classes] output of the head."""
        if self.head is None:
            raise ValueError("a model for links has no head")
        with torch.no_grad():
            out: Tensor = self.head(embedding)
        return out

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(parameter.numel() for parameter in self.parameters())
