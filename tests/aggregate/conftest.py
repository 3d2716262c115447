"""Puts the federation that the tests of this folder run beside them."""

import sys
from pathlib import Path

# The tests are imported by path (importlib mode), so that `federation` is no package of its own.
sys.path.insert(0, str(Path(__file__).parent))
