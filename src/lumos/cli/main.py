"""The `lumos` command: dispatch, and one clear line for every mistake."""

import os
import sys

from cyclopts import App, CycloptsError

import lumos
from lumos.cli.common import TYPED
from lumos.cli.help_screen import HELP_ALL, HelpScreen
from lumos.cli.wording import as_options
from lumos.errors import LumosError
from lumos.ranks.member import end_at_once, is_rank

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 and the number of the signal."""

app = App(
    name="lumos",
    help="""Federated graph learning where every device is one vertex.

  lumos train demo                       a first run, in seconds
  lumos train demo --out runs/demo       the same, kept in a folder
  lumos report runs/demo                 its page
  lumos train --help                     what can be chosen""",
    help_format="plaintext",
    version=lumos.__version__,
    version_format="plaintext",
    suppress_keyboard_interrupt=False,
)
_COMMANDS = {
    "train": "Train a model across devices, without pooling their data.",
    "predict": "Predict with a trained model.",
    "report": "Write the page of a run.",
    "evaluate": "Compare systems on one graph, over seeds.",
    "baseline": "Train a system for comparison.",
    "audit": "Attack a graph or a run, and compare with what is claimed.",
    "budget": "What noise leaves of messages, and a forecast, before a run.",
    "split": "Write a graph in parts, for several processes or devices.",
    "pki": "Certificates of real devices, and the configuration of NATS.",
    "up": "Train with real devices on this machine, a process each.",
    "device": "Be a real device.",
    "coordinator": "Coordinate a run of real devices.",
    "trees": "Decide who carries which edge.",
    "data": "List, fetch and check graphs.",
}
"""In the order of `lumos --help`; each is a function of its own module, or an app of commands."""
for _place, (_name, _help) in enumerate(_COMMANDS.items()):
    _function = "app" if _name in ("data", "pki") else _name
    app.command(f"lumos.cli.{_name}:{_function}", name=_name, help=_help, sort_key=_place)


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0: done, 1: failed, 2: bad usage or input, 130: interrupted."""
    status = run(arguments)
    if status and is_rank():
        end_at_once(status)
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    TYPED.set(words)
    try:
        _execute(words)
    except CycloptsError as error:
        return _fail(f"{' '.join(str(error).split())} Type: lumos --help", 2)
    except LumosError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt as interrupt:  # its argument, if any, says how to go on
        return _fail("; ".join(["interrupted", *map(str, interrupt.args)]), INTERRUPTED)
    except BrokenPipeError:
        # The reader went away (`lumos … | head`): nothing to report, and nowhere to report it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    return 0


def _execute(words: list[str]) -> None:
    everything = HELP_ALL in words
    words = ["--help" if word == HELP_ALL else word for word in words]
    if {"--help", "-h"} & {*words}:
        chain, _, _ = app.parse_commands(words)
        command = " ".join(word for word in chain if not word.startswith("-"))
        app.help_formatter = HelpScreen(command, everything)
    elif not words:
        app.help_formatter = HelpScreen("", everything)
    app(words, exit_on_error=False, print_error=False, result_action="return_value")


def _fail(line: str, status: int) -> int:
    print(f"lumos: {as_options(line)}", file=sys.stderr)
    return status
