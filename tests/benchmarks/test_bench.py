"""Measurements at tiny sizes: rows are complete, and their counts exact. No time is tested."""

import json

import pytest
from benchmarks.bench import Row, Size

from benchmarks import bench, bench_crypto, bench_layers, bench_proofs, bench_runs
from lumos import load
from lumos.crypto.groups import GROUPS


def test_sides_take_turns_and_the_first_turn_does_not_count() -> None:
    calls: list[str] = []
    row = bench.alternated(
        "x", lambda: calls.append("ours"), lambda: calls.append("peer"), 2, "others"
    )
    assert calls == ["ours", "peer"] * 3
    assert row.low is not None
    assert row.low <= row.ratio <= (row.high or 0)


def test_layers_have_a_row_for_each_backbone() -> None:
    rows = bench_layers.rows("demo:60", 1, Size())
    assert [row.name.split(",")[0] for row in rows] == ["epoch of gcn", "epoch of gat"]


def test_balancers_beside_the_optimum_and_the_printed_search() -> None:
    rows = bench_runs.balancer_rows(load("demo:60"), 5, seed=0)
    assert [row.unit for row in rows] == ["edges", "edges", "comparisons", "edges"]
    assert rows[-1].ratio == 1
    assert all(row.ratio <= 1 for row in rows if row.unit == "edges")


def test_bytes_of_a_comparison_stand_beside_the_formula() -> None:
    assert bench_crypto.cryptflow2_bits(8) == 708
    rows = [row for row in bench_crypto.comparison_rows(0.01) if row.unit == "bytes"]
    assert len(rows) == len(bench_crypto.SIZES) * len(list(GROUPS))
    assert {row.peer for row in rows} == {708 / 8}


def test_messages_of_a_masked_sum() -> None:
    """Secure and ideal sums and ledgers are checked to be the same on the way."""
    rows = {row.unit: row for row in bench_crypto.sum_rows(60, 512)}
    assert rows["messages a device"].ours == 8


def test_sizes_of_proofs_stand_beside_the_vector() -> None:
    """All proofs are verified on the way."""
    rows = {row.unit: row for row in bench_proofs.width_rows(300, 1, devices=2)}
    assert (rows["bytes"].ours, rows["bytes"].peer) == (13_936, 300 * 7)


def test_the_inner_product_argument_is_one() -> None:
    left, right = [3, 1, 4, 1, 5], [2, 7, 1, 8, 2]
    argument = bench_proofs.Argument.prove(left, right)
    assert len(argument.points) == 2 * 3
    for value, holds in ((3 * 2 + 7 + 4 + 8 + 10, True), (34, False)):
        assert argument.verify(bench_proofs.commit(left, right, value), 5) == holds
    assert not argument.verify(bench_proofs.commit(left, [*right[:4], 3], 40), 5)


def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(size: Size) -> list[Row]:
        return [Row(name="work", ours=1, peer=3, ratio=3, unit="CPU s", against="others")]

    monkeypatch.setattr(bench_runs, "endpoint", measure)
    bench.main(["endpoint", "--json"])
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["measurement"], row["ratio"]) == ("endpoint", 3)
    bench.main(["endpoint"])
    assert "work" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        bench.main(["nothing"])
    assert "there is no 'nothing'; there are layers" in capsys.readouterr().err


def test_features_are_stored_in_both_ways() -> None:
    row = bench_runs.feature_row(60, 20, 0.1, 1)
    assert row.against == "stored dense"
    assert row.ratio > 0
