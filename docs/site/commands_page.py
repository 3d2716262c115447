"""The page of the command line, made from the commands themselves."""

import re

from lumos.cli.main import app

NOTE = re.compile(r" ?(?:\*{1,2}|\\)?\[(?P<note>(?:default|choices|env|required)\b[^\]]*)\]\*{0,2}")
"""What cyclopts puts in brackets, with or without emphasis."""
OPENING = """# Command line

Made from the commands of Lumos {version}. `lumos COMMAND --help` prints the same. Settings
are declared once, in the dataclasses of [Settings](api/settings.md); options have their names.

"""


def commands_page() -> str:
    """Every command with its arguments, its options and their defaults."""
    from lumos import __version__

    text = app.generate_docs(output_format="markdown", include_hidden=True)
    text = text[text.index("\n## lumos ") :].lstrip("\n")
    lines = [_option(line) if line.startswith("* ") else line for line in text.splitlines()]
    return OPENING.format(version=__version__) + "\n".join(lines) + "\n"


def _option(line: str) -> str:
    """One option, with what cyclopts has in brackets in words."""
    words = {"default": "default ", "choices": "one of ", "env": "or the variable "}

    def worded(found: re.Match[str]) -> str:
        kind, _, value = found["note"].partition(":")
        value = value.strip()
        if kind == "default" and value == "False":
            return ""
        return f" *({words.get(kind, kind)}{value})*"

    return NOTE.sub(worded, line).rstrip()
