"""The snippets of docs/graphs.md run as they stand there, and print what they say."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "graphs.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_snippets(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    snippet = SNIPPETS[number]
    exec(compile(snippet, f"snippet {number}", "exec"), {})  # noqa: S102  # our own page
    printed = capsys.readouterr().out
    for said in re.findall(r"print\(.*\)  # (.*)", snippet):
        assert said.split(": the first")[0] in printed


def test_every_option_is_described() -> None:
    from dataclasses import fields

    from lumos.graph import ReadOptions

    text = GUIDE.read_text("utf-8")
    assert [field.name for field in fields(ReadOptions) if field.name not in text] == []
