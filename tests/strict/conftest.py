"""A short strict run, for tests that only need its course."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def short() -> Iterator[dict[str, int]]:
    """Trust is trained for 4 epochs instead of 60, for runs of which only the course matters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.strict.schedule.TRUST_EPOCHS", 4)
        yield {"encoder_epochs": 2, "epochs": 8}
