"""Fixtures for graph files."""

import sys
from pathlib import Path

# The tests are imported by path (importlib mode), so that `writing` is no package of its own.
sys.path.insert(0, str(Path(__file__).parent))
