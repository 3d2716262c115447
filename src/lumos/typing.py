"""Names for the array types that signatures use; shapes stand in docstrings and comments."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
"""Ids, positions, counts."""
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
"""Message bodies, packed bits, keys."""
Small = npt.NDArray[np.int8]
"""Small integers with a sign: numbers of vectors that two devices multiply."""
Words = npt.NDArray[np.uint32]
"""Uniform words of a generator: randomness and keystreams."""
Arrays = dict[str, npt.NDArray[Any]]
"""Arrays by name, as an npz holds them."""
StatePart = Literal["run", "device", "model"]
"""Part of a state that `state_dict` returns and `load_state_dict` takes: `run`, all that the next
epochs depend on, for a checkpoint of a simulation; `device`, all that one restarted participant
needs; `model`, what was learnt, after the last epoch."""
Progress = Callable[[float, float | None, str], None]
"""Callback `(done, total, note)`, called periodically; `total` is None where it is not known."""
