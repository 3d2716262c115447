"""Puts the federation that the tests of this folder run beside them."""

import sys
from pathlib import Path

# The tests are imported by path (importlib mode), so that `federation` is no package of its own;
# `carriers` has the carrier that poisons the memory of programs that wait.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "exchange")]
