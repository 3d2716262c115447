"""The attacks of `lumos audit --deployment`: each fails, and succeeds on a broken variant."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

import lumos
from lumos.audit.table import WITHIN
from lumos.cli.main import run as command
from lumos.deploy.attacks import ATTACKS, EdgesFound, edges_of
from lumos.deploy.virtual import TIMING_ATTACKS
from lumos.errors import UsageError

FEW = "edges, from times: staggered by less than a tick"
"""Twelve devices, less than a tick apart, are all served within four ticks: no power."""


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_fail_and_would_succeed_without_the_defence(name: str) -> None:
    report = lumos.audit_deployment("demo:12", attacks=[name], runs=1)
    assert report.rows
    assert {row.attack for row in report.rows} == {name}
    for row in report.rows:
        assert row.bound is not None
        assert row.undefended is not None
        if row.about != FEW:
            assert row.undefended > row.bound, row.about
            assert report.verdict(row) == WITHIN, row.about
    if name == "timing":
        assert len(report.rows) == 2 * len(TIMING_ATTACKS)
        sure = ("withheld sum", "forged sum", "crash")
        areas = [row.undefended for row in report.rows if row.about.endswith(sure)]
        assert areas[::2] == [1.0, 1.0, 1.0]  # those for whom the device is waited are known


def test_an_attack_that_gains_nothing_without_the_defence_has_no_power() -> None:
    report = lumos.audit_deployment("demo:12", attacks=["barriers"], runs=1)
    row = report.rows[0]
    assert report.verdict(row) == WITHIN
    for found in (0.5, 0.4):
        assert report.verdict(replace(row, undefended=found)) == "no power"


def test_areas_at_chance_have_their_standard_error() -> None:
    """Scores that have nothing to do with the edges."""
    edges, rng = edges_of(lumos.load("demo:60")), np.random.default_rng(0)
    found = EdgesFound()
    for _ in range(40):
        scores = np.where(rng.random((60, 60)) < 0.3, np.nan, rng.normal(size=60))
        found.add(scores, np.zeros((60, 60), np.bool_), edges)
    assert np.std(found.areas, ddof=1) == pytest.approx(np.mean(found.errors), rel=0.35)
    assert abs(found.mean.value - 0.5) < 4 * found.mean.error


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["audit", "demo:12", "--deployment", "--attack", "barriers"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "On demo:12, attacks on 12 real devices in virtual time took 2 measurements" in shown
    assert "without the defence" in shown
    words = ["audit", "demo:12", "--deployment", "--attack", "files", "--json"]
    assert command(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["undefended"] for row in report["rows"]] == [6.0, 6.0, 6.0]
    assert lumos.AuditReport.from_json(report).rows[0].undefended == 6.0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["audit"], "name a graph or a run, or use --deployment"),
        (["audit", "--deployment", "--epochs", "3"], "--epochs has no effect with --deployment"),
        (["audit", "demo", "--deployment"], "--deployment attacks 10 to 200 devices, got 2,000"),
        (
            ["audit", "--deployment", "--attack", "broker"],
            "--attack must be one of files",
        ),
    ],
)
def test_what_cannot_be_attacked_is_refused(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(words) == 2
    assert line in capsys.readouterr().err
    with pytest.raises(UsageError, match="`runs` must be 1 or more"):
        lumos.audit_deployment("demo:12", runs=0)
