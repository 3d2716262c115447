"""The snippets of a page: what a reader would type, and what the page says comes out."""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^>]*?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Snippet:
    """One block of code on a page."""

    line: int
    """Where it starts."""
    language: str
    text: str
    mark: str
    """The HTML comment right before it; `not run: why` keeps it from being run."""

    @property
    def not_run(self) -> str:
        """Why it is not run; empty where it is."""
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else ""


@dataclass(frozen=True)
class Command:
    """One command of a console block."""

    words: str
    output: list[str]
    """Lines that the page shows below it."""


def snippets(page: Path) -> list[Snippet]:
    """All blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [
        Snippet(
            line=text.count("\n", 0, found.start("text")),
            language=found["language"],
            text=found["text"],
            mark=found["mark"] or "",
        )
        for found in BLOCK.finditer(text)
    ]


def commands(block: str) -> list[Command]:
    """The commands of a console block: lines after `$`, without a comment at their end."""
    found: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Command(re.sub(r"\s+# .*$", "", line[2:]).strip(), []))
        elif found:
            found[-1].output.append(line)
    return found


def printed(block: str) -> list[str]:
    """What a Python block says it prints: comments after `print(…)`, or on lines of their own."""
    shown: list[str] = []
    below = False
    for line in block.splitlines():
        if found := re.search(r"^print\(.*\)  # (.+)$", line):
            shown.append(found[1])
        elif below and line.startswith("# "):
            shown.append(line[2:])
            continue
        below = re.search(r"^ *print\(.*\)$", line) is not None
    return shown


WRAPPED = 8
"""Lines of a page that may be one line of the output, which only a terminal wraps."""


def matches(shown: list[str], out: str) -> str:
    """The first shown line that is not in the output, in order; `…` stands for anything.

    Several shown lines may be one line of the output, as a terminal wraps it.
    """
    place, number = 0, 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    wanted = [words for line in shown if (words := " ".join(line.split())) not in ("", "…")]
    while number < len(wanted):
        found = next(
            (
                (at, many)
                for at in range(place, len(lines))
                for many in range(1, min(WRAPPED, len(wanted) - number) + 1)
                if _pattern(" ".join(wanted[number : number + many])).fullmatch(lines[at])
            ),
            None,
        )
        if found is None:
            return wanted[number]
        place, number = found[0] + 1, number + found[1]
    return ""


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, words.split("…"))))
