"""Progress: a line at most every ten seconds, a bar in a terminal, one output in a notebook."""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import lumos
from lumos import display
from lumos.display import NotebookBar, ProgressLines, displayed, duration, line_of


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_at_most_every_ten_seconds() -> None:
    clock, lines = Clock(), list[str]()
    report = ProgressLines("training", lines.append, clock)
    for second in range(61):
        clock.now = float(second)
        report(second, 120, f"epoch {second}")
    assert lines == [
        f"training: {second} of 120 · epoch {second} · about {120 - second} s left"
        for second in range(10, 61, 10)
    ]


def test_a_short_job_says_nothing() -> None:
    clock, lines = Clock(), list[str]()
    report = ProgressLines("training", lines.append, clock)
    for done in range(100):
        clock.now += 0.09
        report(done, 100, "")
    assert lines == []


def test_the_time_left_is_of_the_phase() -> None:
    clock, lines = Clock(), list[str]()
    report = ProgressLines("training", lines.append, clock)
    clock.now = 100.0
    report(5, 1000, "balancing")  # a phase begins with what was done before
    clock.now = 120.0
    report(205, 1000, "balancing")
    report(0, 50, "training")  # another total: another phase
    clock.now = 130.0
    report(10, 50, "training")
    clock.now = 140.0
    report(3, None, "writing")
    assert lines == [
        "training: 5 of 1,000 · balancing",
        "training: 205 of 1,000 · balancing · about 80 s left",
        "training: 10 of 50 · training · about 40 s left",
        "training: 3 · writing",
    ]


def test_durations() -> None:
    assert [duration(s) for s in (3, 119, 600, 7199, 9000)] == [
        "3 s",
        "119 s",
        "10 min",
        "120 min",
        "2.5 h",
    ]
    assert line_of("x", 1, 2, "", 0.4) == "x: 1 of 2"


def test_what_the_option_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def own(done: float, total: float | None, note: str) -> None: ...

    for nothing in (None, False):
        with displayed(nothing, "training") as shown:
            assert shown is None
    with displayed(own, "training") as shown:
        assert shown is own
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with displayed(True, "training") as shown:
        assert isinstance(shown, ProgressLines)


def test_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with displayed(True, "[b]:100:") as shown:
        assert shown is not None
        shown(1, 2, "[i]:smile:")
    assert "[b]:100:" in terminal.getvalue()
    assert "[i]:smile:" in terminal.getvalue()


class Notebook:
    """As much of IPython as a kernel offers."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.display = SimpleNamespace(display=self._show)

    def get_ipython(self) -> Any:
        return SimpleNamespace(kernel=object())

    def _show(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.outputs.append(content)

        def update(content: dict[str, str], *, raw: bool) -> None:
            self.outputs[-1] = content

        return SimpleNamespace(update=update)


def test_one_output_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with displayed(True, "training") as shown:
        assert isinstance(shown, NotebookBar)
        shown(1, 3, "<epoch> 1")
        assert notebook.outputs[0]["text/plain"] == "training: 1 of 3 · <epoch> 1"
        shown(3, 3, "<epoch> 3")
    assert len(notebook.outputs) == 1
    assert notebook.outputs[0]["text/plain"] == "training: 3 of 3 · <epoch> 3"
    assert '<progress value="3" max="3">' in notebook.outputs[0]["text/html"]
    assert "&lt;epoch&gt; 3" in notebook.outputs[0]["text/html"]


def test_a_job_without_steps_leaves_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with displayed(True, "balancing"):
        pass
    assert notebook.outputs == []


def test_from_python(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
    quick: dict[str, Any] = {"profile": "paper", "compare": "ideal", "iterations": 300, "epochs": 2}
    lumos.train("demo:60", floor=False, progress=True, **quick)
    lines = capsys.readouterr().err.splitlines()
    assert "training: 256 of 300" in lines[1]
    assert "training: 2 of 2 · run epoch 2" in lines[-1]
    lumos.baseline("demo:60", system="own", epochs=2, progress=True)
    assert capsys.readouterr().err.startswith("own: 1 of 2 · epoch 1 · loss ")
    settings = lumos.TreeSettings(balancer="mcmc", compare="ideal", iterations=300)
    lumos.balance("demo:60", settings, progress=True)
    assert capsys.readouterr().err.startswith("balancing: 0 of 300")
    lumos.balance("demo:60", settings)
    assert capsys.readouterr().err == ""
