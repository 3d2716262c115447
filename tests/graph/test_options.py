"""Options for reading, as Python, the command line and a run folder hand them over."""

import json
from typing import Any

import pytest

from lumos.errors import UsageError
from lumos.graph.io import ReadOptions

GIVEN: dict[str, Any] = {
    "label_column": 3,
    "label_bins": 4,
    "masks": "ignore",
    "categorical": ["color", 4],
    "feature_bounds": (0, 2.5),
    "header": "no",
}


def test_what_python_writes_is_kept_as_text() -> None:
    options = ReadOptions.of(GIVEN)
    assert options.label_column == "3"
    assert options.categorical == "color,4"
    assert options.categorical_columns == ("color", "4")
    assert options.feature_bounds == "0,2.5"


def test_a_run_folder_can_keep_them() -> None:
    options = ReadOptions.of(GIVEN)
    again = ReadOptions.of(json.loads(json.dumps(vars(options))))
    assert again == options
    assert ReadOptions.of(vars(ReadOptions())) == ReadOptions()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("label_bins", 1),
        ("label_bins", 2.5),
        ("label_bins", True),
        ("label_bins", "4"),
        ("label_column", 2.5),
        ("label_column", ["a"]),
        ("categorical", {"a": 1}),
        ("categorical", [None]),
        ("feature_bounds", [[0], [1]]),
        ("masks", "keep"),
        ("header", True),
    ],
)
def test_wrong_values_name_the_option(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=option):
        ReadOptions.of({option: value})
