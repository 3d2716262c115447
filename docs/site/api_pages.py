"""Pages of the programming interface: every public name, from its docstring."""

import lumos

TITLES = {
    "functions": ("Functions", "What `import lumos` offers to call."),
    "graph": ("Graph", "The graph, and what a reader of files and objects may do."),
    "run": ("Run", "What `lumos.train` and `lumos.load_run` return."),
    "settings": (
        "Settings",
        "One frozen dataclass for each group is the only source of defaults. "
        "`lumos.train(…, epsilon=2.0)` sorts single settings into their groups, and the "
        "[command line](../commands.md) has them as options.",
    ),
    "reports": (
        "Evaluation, trees, ledger, audit",
        "What comparisons, balancing, training and attacks are reported in.",
    ),
    "errors": ("Errors", "Everything that Lumos raises on purpose."),
}
"""Pages in order: title and first sentence."""
BESIDE = {
    "graph": ["lumos.graph.io.ReadOptions"],
    "run": [
        "lumos.training.split.DataSplit",
        "lumos.runs.run.RunData",
        "lumos.runs.run.Cost",
        "lumos.training.trainer.Outcome",
        "lumos.training.trainer.LinkPredictions",
        "lumos.runs.schema.TreeSummary",
    ],
    "settings": [
        "lumos.training.config.TrainSettings",
        "lumos.strict.settings.StrictSettings",
        "lumos.paper.profile.PaperSettings",
        "lumos.model.ModelSettings",
        "lumos.secagg.parameters.AggregateSettings",
        "lumos.baselines.systems.BaselineSettings",
    ],
    "reports": ["lumos.exchange.observer.TopicLine", "lumos.audit.table.AuditRow"],
}
"""What public names lead to, by its home."""
FIRST = ("load", "train", "evaluate", "baseline", "balance", "run_audit", "load_run", "Run")
"""Names in the order in which they are met; others follow by name."""
PAGES = {"Graph": "graph", "Run": "run", "EpochEvent": "run", "Config": "settings"}
"""Pages of single names; others follow from what they are."""


def page_of(name: str) -> str:
    """Which page has a public name."""
    if name in PAGES:
        return PAGES[name]
    if name[0].islower():
        return "functions"
    if lumos._HOMES[name] == "lumos.errors":
        return "errors"
    return "settings" if name.endswith("Settings") else "reports"


def api_pages() -> dict[str, str]:
    """The text of each page, by its path."""
    homes: dict[str, list[str]] = {page: [] for page in TITLES}
    order = {name: place for place, name in enumerate(FIRST)}
    for name in sorted(lumos.__all__, key=lambda name: (order.get(name, len(FIRST)), name)):
        homes[page_of(name)].append(f"{lumos._HOMES[name]}.{name}")
    return {
        f"api/{page}.md": _page(
            title,
            sentence,
            [*homes[page], *BESIDE.get(page, [])],
            defaults=page in ("settings", "graph"),
        )
        for page, (title, sentence) in TITLES.items()
    }


def _page(title: str, sentence: str, homes: list[str], *, defaults: bool) -> str:
    options = "    options:\n      show_attribute_values: " + ("true" if defaults else "false")
    parts = [f"# {title}", sentence]
    parts += [f"::: {home}\n{options}" for home in dict.fromkeys(homes)]
    return "\n\n".join(parts) + "\n"
