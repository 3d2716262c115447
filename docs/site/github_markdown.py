"""Pages are written as code hosts read them; this lets Python-Markdown read them alike.

Two differences matter here. Python-Markdown starts a list or a table only after a blank line, and
what belongs to a list item must be indented by four spaces.
"""

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

ITEM = re.compile(r"^ {0,3}(?:[-*+]|1[.)]) ")
"""What starts a list after a line of text."""
ANY_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)]) ")
RULER = re.compile(r"^\s*\|?(?:\s*:?-{3,}:?\s*\|)+")
"""The line below the header of a table."""


class BlankLines(Preprocessor):  # type: ignore[misc]  # Python-Markdown has no types
    """Put a blank line before each list and each table that follows a line of text."""

    def run(self, lines: list[str]) -> list[str]:
        """The same lines, and blank ones between."""
        made: list[str] = []
        in_list = False
        for number, line in enumerate(lines):
            follows_text = bool(made) and bool(made[-1].strip())
            if ANY_ITEM.match(line):
                if follows_text and not in_list and ITEM.match(line):
                    made.append("")
                in_list = in_list or bool(ITEM.match(line)) or not follows_text
            elif line.strip() and not line.startswith(" ") and not follows_text:
                in_list = False
            if follows_text and not made[-1].lstrip().startswith("|"):
                below = lines[number + 1] if number + 1 < len(lines) else ""
                if line.lstrip().startswith("|") and RULER.match(below):
                    made.append("")
            made.append(line)
        return made


class GitHubMarkdown(Extension):  # type: ignore[misc]
    """Lists and tables as code hosts read them."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add the preprocessor, after fenced code was taken out."""
        md.tab_length = 2
        for name in ("indent", "olist", "ulist"):  # they have read the old length
            processor = md.parser.blockprocessors[name]
            processor.__init__(md.parser)
        md.preprocessors.register(BlankLines(md), "github_blank_lines", 20)
