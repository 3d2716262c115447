"""The site is built once for all tests of it, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.shared_runs import SharedFolders

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(shared: SharedFolders) -> Path:
    """The folder of the site."""
    return shared.made("site", _build)


def _build(folder: Path) -> None:
    """Build it with warnings as errors, and without a network."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
