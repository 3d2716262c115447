"""How to repeat the run: command, seed, graph, versions."""

from lumos.report.page import Block, Code, Section, Table, Text
from lumos.report.rerun import rerun_command
from lumos.runs.run import Run


def section(run: Run) -> Section:
    """The command, and what else the figures depend on."""
    about = run.about
    command = rerun_command(run)
    blocks: list[Block] = []
    if command is None:
        blocks.append(
            Text(
                "This run was made from Python with a graph in memory; `lumos.train(graph, …)` "
                "with the settings above and this seed makes it again."
            )
        )
    else:
        blocks.append(
            Code(
                command,
                "The command of this run; `DIR` is a new folder, and `lumos report DIR` makes its "
                "page. A graph given by name is looked for in `LUMOS_DATA` or `--data-dir`.",
            )
        )
    if run.config.train.coins == "system":
        blocks.append(
            Text("Coins came from the operating system: another run gives other figures.")
        )
    rows: list[tuple[str, str]] = [
        ("seed", str(about.seed)),
        ("shards", str(about.shards)),
        ("fingerprint of the graph", about.fingerprint),
        ("Lumos", about.lumos),
        *about.versions.items(),
    ]
    caption = "What the figures depend on, beside the settings"
    blocks.append(Table(["", "in this run"], rows, caption))
    return Section("Run it again", blocks)
