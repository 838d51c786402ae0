"""The figures of the paper, drawn from stored results; a figure whose rows are missing says how to make them.

One entry of `FIGURES` per figure: a function from the results to a `PaperFigure`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from unle.plot import pairs
from unle_bench.paper import density_figures
from unle_bench.plot import Series, budget_curves, stage_bars
from unle_bench.results.published import number_of
from unle_bench.results.results_query import ResultsQuery
from unle_bench.results.results_store import Cell
from unle_bench.results.tables import COUNTERPARTS

MISSING = "rows are missing"


@dataclass(frozen=True)
class Drawn:
    """One picture: its figure, what is below it, and what it shows in a sentence."""

    figure: Any
    caption: str
    alt: str


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, or of its appendix.

    Attributes:
        name: for `--only` and file names.
        title: its heading.
        text: what to look for.
        drawn: pictures, as far as rows exist.
        missing: (task, method, budget) without rows.
        how: the command that makes what is missing, where it is not a benchmark.
        why: what is missing, as the first half of a sentence that ends with the command.
    """

    name: str
    title: str
    text: str
    drawn: list[Drawn] = field(default_factory=list)
    missing: list[tuple[str, str, int]] = field(default_factory=list)
    how: str | None = None
    why: str = MISSING

    @property
    def command(self) -> str | None:
        """The command that makes what is missing, or None."""
        if not self.missing:
            return self.how
        names = [",".join(dict.fromkeys(str(key[k]) for key in self.missing)) for k in range(3)]
        return f"unle bench --tasks {names[0]} --methods {names[1]} --budgets {names[2]}"


TASKS = ("two_moons", "slcp", "lotka_volterra", "gaussian_linear_uniform")  # of the paper
BUDGETS = (1000, 10_000, 100_000)


def _absent(results: ResultsQuery, tasks: Iterable[str], methods: Iterable[str], budgets: Iterable[int]) -> list:
    wanted = [(task, method, budget) for task in tasks for method in methods for budget in budgets]
    return [key for key in wanted if key not in results.summaries]


def _curves(results: ResultsQuery, methods: Sequence[str], *, with_published: bool = True) -> dict[str, list[Series]]:
    """Return the lines of all tasks that have rows of one of the methods."""
    panels: dict[str, list[Series]] = {}
    for task in results.tasks(methods):
        lines, shown = [], set()
        for k, method in enumerate(methods):
            points = results.curve(task, method)
            if points:
                budgets, ours = zip(*points, strict=True)
                means, errors, deviations, partial = zip(
                    *((one.mean, one.error, one.deviation, one.partial) for one in ours), strict=True
                )
                lines.append(Series(method, budgets, means, errors, deviations, partial, colour=k))
            counterpart = COUNTERPARTS.get(method) if with_published and results.comparable else None
            numbers = [number_of(counterpart, task, budget) for budget in BUDGETS] if counterpart else []
            known = [one for one in numbers if one is not None]
            if known and counterpart not in shown:  # once, beside the first of several methods that it belongs to
                shown.add(counterpart)
                label = f"{counterpart} (published)"
                numbers = [o.budget for o in known], [o.c2st for o in known]
                lines.append(Series(label, *numbers, colour=k, published=True))
        panels[task] = lines
    return panels


def _describe(panels: dict[str, list[Series]], what: str) -> str:
    """Return the words that stand in for the curves: what is compared, where. Tables have the numbers."""
    methods = dict.fromkeys(line.label for lines in panels.values() for line in lines if not line.published)
    return f"{what}: {', '.join(methods)} on {', '.join(panels)}."


def _compare(
    results: ResultsQuery, name: str, title: str, text: str, methods: Sequence[str], **options: Any
) -> PaperFigure:
    """Return a figure of C2ST curves of some methods on the paper's tasks and whatever others there are."""
    panels = _curves(results, methods, **options)
    drawn = []
    if panels:
        caption = (
            "Mean over seeds and observations. Bars with caps: standard error over seeds. Thin lines without caps,"
            " where there is one seed: standard deviation over observations. Hollow: not all observations."
        )
        caption += " Dashed: published." if any(line.published for lines in panels.values() for line in lines) else ""
        drawn = [Drawn(budget_curves(panels), caption, _describe(panels, "C2ST against simulations"))]
    return PaperFigure(name, title, text, drawn, _absent(results, TASKS, methods, BUDGETS))


def accuracy(results: ResultsQuery) -> PaperFigure:
    """Figure 2 of the paper: C2ST against the number of simulations, amortised and sequential methods apart."""
    sets = (
        ("aunle-paper", "aunle", "nle", "smnle-ssm"),
        ("sunle-paper", "sunle-paper-divi", "sunle-paper-online", "sunle", "snle"),
    )
    figures = [_compare(results, "", "", "", methods) for methods in sets]
    text = (
        "C2ST against simulations: lower is better, 0.5 is perfect. Amortised methods first, then sequential ones; the"
        " algorithms as the paper prints them are called -paper, and ours beside them are the defaults."
    )
    drawn = [one for figure in figures for one in figure.drawn]
    return PaperFigure("c2st", "Accuracy", text, drawn, [key for figure in figures for key in figure.missing])


def particles(results: ResultsQuery) -> PaperFigure:
    """Two figures of the appendix: training by SMC against training by MALA, with few and with many moves."""
    printed = _compare(results, "", "", "", ("aunle-paper-smc", "aunle-paper"), with_published=False)
    few = _compare(results, "", "", "", ("aunle-smc-5", "aunle-mala-30"), with_published=False)
    many = _compare(results, "", "", "", ("aunle-smc-20", "aunle-mala-200"), with_published=False)
    text = (
        "AUNLE trained with sequential Monte Carlo between successive models, and with persistent MALA chains:"
        " as the paper prints it (20 temperatures of 3 steps against 60 steps), then over fitted bases, 5 temperatures"
        " against 30 steps per iteration and 20 against 200."
    )
    parts = (printed, few, many)
    drawn, missing = ([one for part in parts for one in getattr(part, name)] for name in ("drawn", "missing"))
    return PaperFigure("particles", "Training by SMC and by MALA", text, drawn, missing)


def sampling(results: ResultsQuery) -> PaperFigure:
    """A figure of the appendix: AUNLE's posterior sampled as it is, and as if its normaliser depended on theta."""
    text = (
        "One model, two samplers: a plain one, and the exchange algorithm, which also holds if Z depends on theta."
        " Equal curves mean that the tilted model keeps its promise."
    )
    methods = ("aunle-single", "aunle-exchange")
    return _compare(results, "sampling", "Plain and doubly intractable sampling", text, methods, with_published=False)


def score_matching(results: ResultsQuery) -> PaperFigure:
    """A figure of the appendix: exact and sliced score matching against maximum likelihood and a flow."""
    text = "Energies trained by maximum likelihood, by score matching, exact (SM) and sliced (SSM), and a flow."
    return _compare(results, "smnle", "Score matching", text, ("aunle", "smnle-sm", "smnle-ssm", "nle"))


def times(results: ResultsQuery) -> PaperFigure:
    """Figures of the appendix: minutes by stage, and minutes of each method."""
    drawn = []
    for method in ("aunle", "sunle"):
        for machine in results.machines([method]):
            bars = {task: results.stages(task, method, machine) for task in results.tasks([method])}
            bars = {task: stages for task, stages in bars.items() if stages}
            alt = f"Minutes of {method} on {machine} by stage and budget for {', '.join(bars)}."
            drawn.append(Drawn(stage_bars(bars), f"{method.upper()} on {machine}: minutes per run.", alt))
    for methods in (("aunle", "nle"), ("sunle", "snle")):
        for machine in results.machines(methods):
            panels = _minutes(results, methods, machine)
            caption = f"Minutes per run on {machine}. Published times were measured on other machines: a GPU for AUNLE"
            caption += " and SUNLE, one thread of a CPU for NLE and SNLE."
            figure = budget_curves(panels, label="minutes", logarithmic=True, chance=False)
            drawn.append(Drawn(figure, caption, _describe(panels, "Minutes against simulations")))
    text = (
        "Minutes of simulating, training and drawing for one observation, every machine by itself. Runs that found"
        " their programs compiled count alone where there are some; otherwise the time of compiling is included."
    )
    missing = _absent(results, TASKS, ("aunle", "sunle", "nle", "snle"), BUDGETS)
    return PaperFigure("time", "Time", text, drawn, missing)


def _minutes(results: ResultsQuery, methods: Sequence[str], machine: str) -> dict[str, list[Series]]:
    panels: dict[str, list[Series]] = {}
    for task in results.tasks(methods):
        lines = []
        for k, method in enumerate(methods):
            times = results.stages(task, method, machine)
            points = [(budget, sum(stages.values())) for budget, stages in times.items()]
            if points:
                lines.append(Series(method, *zip(*points, strict=True), colour=k))
            numbers = [number_of(COUNTERPARTS[method], task, budget) for budget in BUDGETS]
            known = [(o.budget, o.minutes) for o in numbers if o is not None and o.minutes]
            if known:
                label = f"{COUNTERPARTS[method]} (published)"
                lines.append(Series(label, *zip(*known, strict=True), colour=k, published=True))
        if any(not line.published for line in lines):
            panels[task] = lines
    return panels


def _why(results: ResultsQuery, missing: Iterable[tuple[str, str, int]]) -> str:
    """Return what a figure of draws lacks: rows, or the arrays that only a results file holds beside them."""
    if not results.has_arrays:
        return "this needs stored draws, and a .csv holds rows alone; give the results file, or make one"
    have = {key[:2] for key in results.summaries}
    if any(key[:2] not in have for key in missing):
        return MISSING
    return "stored draws are missing, and rows that exist are not made again; into another file, by --results FILE"


def pair_plots(results: ResultsQuery) -> PaperFigure:
    """Figures of the appendix: posteriors beside the exact ones, task by task."""
    drawn, missing = [], []
    for task in TASKS:
        for method in ("sunle-paper", "sunle", "aunle-paper", "aunle"):
            cell = results.pictured(task, method, "draws")
            if cell is None:
                missing.append((task, method, 10_000))
                continue
            drawn.append(_pair_plot(results, cell))
    text = "Posterior draws (blue) and exact ones (vermilion) of one observation; the dashed lines are the truth."
    why = _why(results, missing)
    return PaperFigure("pairs", "Posteriors beside the exact ones", text, drawn, missing, why=why)


def _pair_plot(results: ResultsQuery, cell: Cell) -> Drawn:
    task, draws = results.registry.task(cell.task), results.record(cell, "draws")["draws"]
    reference = task.reference(task.observation(cell.observation), len(draws), seed=0)
    truth = task.true_parameters(cell.observation)
    figure = pairs(draws, task.prior.names, reference=reference, truth=truth, labels=(cell.method, "exact"))
    caption = f"{cell.method.upper()} on {cell.task}, {cell.budget:,} simulations, observation {cell.observation}."
    return Drawn(figure, caption, f"Pair plot: {caption}")


def bimodal(results: ResultsQuery) -> PaperFigure:
    """Figure 1 of the paper: a likelihood with two modes."""
    methods = ("aunle-paper", "aunle", "nle", "smnle-ssm", "sunle-paper", "sunle")
    figure, shown, observation = density_figures.bimodal(results, methods)
    caption = "Above: the density of x for one theta, exact and learned. Below: the posterior at"
    caption += f" x = ({', '.join(f'{value:.3g}' for value in observation)})."
    alt = f"Likelihood and posterior of the bimodal model, exact and by {', '.join(shown)}."
    drawn = [] if figure is None else [Drawn(figure, caption, alt)]
    missing = [("bimodal", method, 1000) for method in methods if method not in shown]
    text = "A simulator that adds or subtracts a shift: a method must keep both modes, at equal weight, and no bridge."
    why = _why(results, missing)
    return PaperFigure("bimodal", "A likelihood with two modes", text, drawn, missing, why=why)


def moons(results: ResultsQuery) -> PaperFigure:
    """A figure of the appendix: densities of Two Moons, learned on a grid, from draws, and exact."""
    methods = ("aunle-paper", "aunle", "sunle-paper", "sunle")
    figure, shown = density_figures.moons(results, methods)
    caption = "Left: the learned posterior density on a grid. Middle: a kernel estimate from draws. Right: exact."
    alt = f"Densities of Two Moons by {', '.join(shown)}, beside the exact one."
    drawn = [] if figure is None else [Drawn(figure, caption, alt)]
    missing = [("two_moons", method, 1000) for method in methods if method not in shown]
    text = "The learned density and its draws should agree with each other, and with the truth."
    why = _why(results, missing)
    return PaperFigure("moons", "Two Moons: density and draws", text, drawn, missing, why=why)


FIGURES: dict[str, Callable[[ResultsQuery], PaperFigure]] = {
    "bimodal": bimodal,
    "c2st": accuracy,
    "pairs": pair_plots,
    "moons": moons,
    "particles": particles,
    "sampling": sampling,
    "smnle": score_matching,
    "time": times,
}
