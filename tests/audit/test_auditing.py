"""The whole audit: which attacks run, what is refused, what is written, and how it ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import lumos
from lumos.audit import ATTACKS, Attack, AuditRow, Scene
from lumos.audit.table import Exactly
from lumos.cli.main import run as command
from lumos.errors import InputError, UsageError


def too_much(scene: Scene) -> Iterator[AuditRow]:
    """An attack that exceeds its bound."""
    yield AuditRow(
        attack="too-much",
        adversary="one neighbour",
        about="everything",
        measure="bits",
        estimate=Exactly(2.0),
        bound=1.0,
        bound_is="a guarantee",
    )


@pytest.fixture
def broken() -> Iterator[str]:
    """The name of an attack that exceeds its bound."""
    ATTACKS.register("too-much", Attack(name="too-much", title="too much", run=too_much))
    yield "too-much"
    ATTACKS.remove("too-much")


def test_exit_status_says_that_a_guarantee_was_exceeded(
    broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["audit", "demo:60", "--attack", "ledger"]) == 0
    assert command(["audit", "demo:60", "--attack", broken, "--attack", "ledger"]) == 1
    captured = capsys.readouterr()
    assert "lumos: 1 of 3 rows exceed their bound (too-much)" in captured.err
    assert "EXCEEDED" in captured.out


def test_json_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command(
            ["audit", "demo:60", "--attack", "randomized-labels", "--label-epsilon", "2", "--json"]
        )
        == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert {row["attack"] for row in report["rows"]} == {"randomized-labels"}
    assert all(row["low"] <= row["value"] for row in report["rows"])
    assert report["exceeded"] == 0
    assert report["settings"] == {"label_epsilon": 2.0}


def test_a_run_folder_is_audited_under_its_own_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    lumos.train("demo:60", label_epsilon=1.0, seed=4, out=out, floor=False)
    assert command(["audit", str(out), "--attack", "randomized-labels"]) == 0
    report = json.loads((out / "audit.json").read_text())
    assert (report["seed"], report["settings"]["label_epsilon"]) == (4, 1.0)
    assert (out / "audit.json").stat().st_mode & 0o077 == 0  # as all files of a run folder
    assert command(["audit", str(out), "--label-epsilon", "2"]) == 2
    assert "own settings" in capsys.readouterr().err
    page = lumos.load_run(out).report(tmp_path / "page.html").read_text()
    assert "What attacks found" in page
    (out / "audit.json").write_text('{"rows": 3}')
    with pytest.raises(InputError, match=r"audit\.json: is damaged"):
        lumos.load_run(out).report(tmp_path / "page.html")


def test_a_place_that_cannot_be_written_is_refused_before_the_audit(
    broken: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for place in (tmp_path, tmp_path / "missing" / "audit.json"):
        assert command(["audit", "demo:60", "--attack", broken, "--out", str(place)]) == 2
        assert "--out" in capsys.readouterr().err


def test_exact_sums_are_audited_without_an_account() -> None:
    assert not lumos.run_audit("demo:60", attacks=["repeats"], protect="none").exceeded


def test_an_audit_spends_nothing_from_an_account(tmp_path: Path) -> None:
    file = tmp_path / "account" / "account.npz"
    run = lumos.train("demo:60", account=file.parent, floor=False)
    before = file.read_bytes()
    lumos.run_audit(run, attacks=["randomized-labels"])
    assert file.read_bytes() == before


def test_what_has_nothing_to_attack_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing to attack"):
        lumos.run_audit("demo:60", attacks=["randomized-labels"], task="link")
    with pytest.raises(UsageError, match="must be one of"):
        lumos.run_audit("demo:60", attacks=["telepathy"])
    with pytest.raises(UsageError, match="has no effect"):
        lumos.run_audit("demo:60", pool="sum")


def test_a_graph_without_labels_is_audited_for_links_only() -> None:
    graph = lumos.load("demo:60")
    bare = lumos.Graph.from_edges(graph.edge_list(), devices=60, features=graph.features)
    report = lumos.run_audit(bare, attacks=["ledger"])
    assert len(report.rows) == 1
    assert report.rows[0].value == 0
    assert np.isfinite(sum(report.seconds.values()))
