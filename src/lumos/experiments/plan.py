"""The plan of a reproduction: every cell with its key, its result or its job."""

from dataclasses import dataclass, field

from lumos.experiments.cache import CachedResult, Key, ResultCache, key_of
from lumos.experiments.cell import Cell
from lumos.experiments.dataset import Dataset
from lumos.experiments.figures import FIGURES
from lumos.experiments.figures.evaluation import NOT_RUN, CellOutcome, PaperEvaluation
from lumos.experiments.figures.row import LEFT_OUT, Row
from lumos.experiments.request import Request
from lumos.experiments.scheduler import JobEnd, PlannedJob
from lumos.experiments.time_limit import by_priority, left_out
from lumos.experiments.worker import CellJob


@dataclass(eq=False)
class RunPlan:
    """Every cell with its key, and what is known of it."""

    request: Request
    cache: ResultCache
    keys: dict[Cell, Key] = field(default_factory=dict)
    results: dict[Cell, CachedResult] = field(default_factory=dict)
    reasons: dict[Cell, str] = field(default_factory=dict)
    """Why a cell that was run has no result."""
    jobs: list[PlannedJob[CellJob]] = field(default_factory=list)
    """Cells that had no result when the plan was made, and fit into the time."""
    left_out: dict[Cell, float] = field(default_factory=dict)
    """Cells without a result that do not fit into it, with their expected seconds."""

    @staticmethod
    def of(request: Request, cache: ResultCache) -> "RunPlan":
        """Look up every cell; those without a result become jobs, as far as they fit."""
        plan, planned = RunPlan(request, cache), set[Key]()
        settings = request.settings
        cells = by_priority(request.figures, request.datasets, settings, request.profiles)
        plan.keys |= {cell: key_of(cell, dataset.fingerprint(cell)) for cell, dataset in cells}
        # Kept results cost nothing. Those of the folder do: the same command chooses the same.
        excess = left_out(
            (
                (cell, settings.seconds(cell, dataset.edges))
                for cell, dataset in cells
                if cache.kept(plan.keys[cell]) is None
            ),
            settings,
        )
        for cell, dataset in cells:
            key = plan.keys[cell]
            result = cache.get(key)
            if result is not None:
                plan.results[cell] = result
            elif cell in excess:
                plan.left_out[cell] = excess[cell]
            elif key not in planned:  # the same graph may stand under two names
                planned.add(key)
                plan.jobs.append(plan._job(cell, key, dataset))
        return plan

    def _job(self, cell: Cell, key: Key, dataset: Dataset) -> PlannedJob[CellJob]:
        request = self.request
        job = CellJob(
            cell=cell,
            key=key,
            data_dir=None if request.data_dir is None else str(request.data_dir),
            path=self.cache.path(key),
            partial=self.cache.partial(key),
        )
        return PlannedJob(
            job=job,
            seconds=request.settings.seconds(cell, dataset.edges),
            megabytes=request.settings.megabytes(cell, dataset.edges),
        )

    def on_end(self, end: JobEnd[CellJob]) -> None:
        """Record how a job ended."""
        result = self.cache.get(end.job.key) if end.status == 0 else None
        for cell in (cell for cell, key in self.keys.items() if key == end.job.key):
            if result is not None:
                self.results[cell] = result
            else:
                self.reasons[cell] = end.reason

    def lookup(self, cell: Cell) -> CellOutcome:
        """What is known of a cell."""
        cached = self.results.get(cell)
        if cached is not None:
            return CellOutcome(cached.result, "", cached.other_version)
        if cell in self.left_out:
            return CellOutcome(reason=LEFT_OUT)
        return CellOutcome(reason=self.reasons.get(cell, NOT_RUN))

    def evaluation(self, dataset: Dataset) -> PaperEvaluation:
        """The evaluation of one graph with these results."""
        request = self.request
        return PaperEvaluation(
            dataset=dataset,
            settings=request.settings,
            lookup=self.lookup,
            profiles=request.profiles,
        )

    def rows(self) -> dict[str, list[Row]]:
        """Every row, by figure."""
        return {
            figure: [
                row
                for dataset in self.request.datasets
                for row in FIGURES[figure].rows(self.evaluation(dataset))
            ]
            for figure in self.request.figures
        }
