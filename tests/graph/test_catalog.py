"""The catalog: consistent with itself."""

import re

import pytest

from lumos.errors import UsageError
from lumos.graph.catalog import CATALOG, LANGUAGES, entry_of, require_entry


@pytest.mark.parametrize("name", CATALOG)
def test_entries_are_complete(name: str) -> None:
    entry = CATALOG[name]
    assert entry.name == name
    assert len(set(entry.files(()))) == 3
    assert set(entry.sha256) <= set(entry.files(()))
    assert all(re.fullmatch("[0-9a-f]{64}", known) for known in entry.sha256.values())
    assert entry.url == f"https://snap.stanford.edu/data/{entry.archive}"
    assert entry.devices < entry.edge_count


def test_names_are_found_in_any_case() -> None:
    assert entry_of("TWITCH-engb") is CATALOG["twitch-ENGB"]
    assert entry_of("twitch") is None
    assert {f"twitch-{language}" for language in LANGUAGES} < set(CATALOG)


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UsageError, match=r"'fb'; choose from facebook, lastfm, twitch-DE"):
        require_entry("fb")
