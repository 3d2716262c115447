"""The `lumos` command: dispatch, and one clear line for every mistake."""

import os
import sys

from cyclopts import App, CycloptsError

import lumos
from lumos.cli.wording import as_options
from lumos.errors import LumosError

app = App(
    name="lumos",
    help="Federated graph learning where every device is one vertex.",
    version=lumos.__version__,
    suppress_keyboard_interrupt=False,
)
app.command("lumos.cli.data:app", name="data", help="List, fetch and check graphs.")
app.command("lumos.cli.trees:trees", name="trees", help="Decide who carries which edge.")
app.command("lumos.cli.train:train", name="train", help="Train a model across devices.")
app.command("lumos.cli.baseline:baseline", name="baseline", help="Train a system for comparison.")
app.command(
    "lumos.cli.budget:budget", name="budget", help="Signal that messages keep, and a forecast."
)
app.command("lumos.cli.predict:predict", name="predict", help="Predict with a trained model.")
app.command("lumos.cli.audit:audit", name="audit", help="Attack a graph or a run, with bounds.")
app.command(
    "lumos.cli.evaluate:evaluate", name="evaluate", help="Compare systems on one graph, over seeds."
)
app.command("lumos.cli.reproduce:reproduce", name="reproduce", help="Run the paper's evaluation.")
app.command("lumos.cli.report:report", name="report", help="Write the HTML page of a run.")


def main(arguments: list[str] | None = None) -> None:
    """Run one command; exit 0 when done, 1 when it failed, 2 on bad usage or input."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(f"{' '.join(str(error).split())} Type: lumos --help", 2)
    except LumosError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", 1)
    except BrokenPipeError:
        # The reader went away (`lumos … | head`): nothing to report, and nowhere to report it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}", 1)
    return 0


def _fail(line: str, status: int) -> int:
    print(f"lumos: {as_options(line)}", file=sys.stderr)
    return status
