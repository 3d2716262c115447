"""The examples of CONTRIBUTING.md are whole: each runs as it stands there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumos.audit import ATTACKS
from lumos.baselines.systems import BASELINES
from lumos.exchange import TRANSPORTS
from lumos.registry import Registry
from lumos.strict.classify.stages import CLASSIFY_STAGES
from lumos.training.profile import PROFILES
from lumos.trees.balancers import BALANCERS

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
EXAMPLE = re.compile(r"^### An? (\w+)\n.*?^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
EXAMPLES: dict[str, str] = dict(EXAMPLE.findall(GUIDE.read_text("utf-8")))
REGISTRIES: dict[str, Registry] = {
    "balancer": BALANCERS,
    "baseline": BASELINES,
    "transport": TRANSPORTS,
    "attack": ATTACKS,
    "profile": PROFILES,
}


@pytest.fixture(autouse=True)
def _registries_are_left_as_they_were() -> Iterator[None]:
    before = {kind: registry.names() for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():
        for name in set(registry.names()) - set(before[kind]):
            registry.remove(name)


def test_there_is_an_example_for_each_registry_and_of_a_stage() -> None:
    assert EXAMPLES.keys() == {*REGISTRIES, "stage"}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_the_example_runs_as_it_stands(kind: str) -> None:
    before = REGISTRIES[kind].names()
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(EXAMPLES[kind], f"{GUIDE.name}: A {kind}", "exec"), names)  # noqa: S102
    assert len(REGISTRIES[kind].names()) == len(before) + 1


def test_the_example_of_a_stage_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger, guarantees, report and coordinator follow from the one class."""
    monkeypatch.chdir(tmp_path)
    before = list(CLASSIFY_STAGES)
    try:
        exec(compile(EXAMPLES["stage"], f"{GUIDE.name}: A stage", "exec"), {"__name__": "__main__"})  # noqa: S102
        assert len(CLASSIFY_STAGES) == len(before) + 1
    finally:
        CLASSIFY_STAGES[:] = before
