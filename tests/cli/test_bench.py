"""`lumos bench` as people type it."""

import json

import pytest

from lumos.bench import MEASUREMENTS
from lumos.bench.rows import BenchRow, BenchSize
from lumos.cli.main import run


@pytest.fixture(autouse=True)
def quick_measurement(monkeypatch: pytest.MonkeyPatch) -> list[BenchSize]:
    """Measurements that cost nothing; the sizes that were asked for."""
    asked: list[BenchSize] = []

    def measure(size: BenchSize) -> list[BenchRow]:
        asked.append(size)
        return [
            BenchRow(name="work", ours=1.0, peer=3.0, ratio=3.0, unit="CPU s", against="others")
        ]

    for name in MEASUREMENTS:
        monkeypatch.setitem(MEASUREMENTS._loaded, name, measure)
    return asked


def test_all_measurements_in_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert [row["measurement"] for row in found["rows"]] == list(MEASUREMENTS)
    assert found["rows"][0]["ratio"] == 3
    assert found["form"] == "quick"
    assert found["machine"]["cores"] >= 1


def test_some_of_them_in_a_table(
    capsys: pytest.CaptureFixture[str], quick_measurement: list[BenchSize]
) -> None:
    assert run(["bench", "--only", "layers,sums", "--full", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert out.count("work") == 2
    assert "cores" in out
    assert [(size.full, size.seed) for size in quick_measurement] == [(True, 3)] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "layer"], "--only must be one of layers, balancers"),
        (["--only", ","], "--only names nothing; use some of layers"),
        (["--quick", "--full"], "--quick and --full exclude each other"),
    ],
)
def test_mistakes_are_answered_with_what_to_do(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", *words]) == 2
    assert said in capsys.readouterr().err
