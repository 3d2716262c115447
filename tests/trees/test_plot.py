"""The picture: written where asked, refused early where it cannot be."""

from pathlib import Path

import numpy as np
import pytest

from lumos.errors import UsageError
from lumos.trees.plot import check_plot, plot_workloads


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "new folder" / f"workloads.{ending}"
    check_plot(path)
    before, after = np.array([0, 3, 3, 9, 1]), np.array([0, 2, 2, 3, 1])
    plot_workloads(path, before, after, 3, "five devices", "optimal")
    assert path.stat().st_size > 1000


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png, \.svg, \.pdf"):
        check_plot(tmp_path / "workloads.doc")


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        check_plot(tmp_path / "file" / "workloads.png")
