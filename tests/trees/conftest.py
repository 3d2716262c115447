"""Makes the naive references of this folder importable."""

import sys
from pathlib import Path

# The tests are imported by path (importlib mode), so that `naive` is no package of its own.
sys.path.insert(0, str(Path(__file__).parent))
