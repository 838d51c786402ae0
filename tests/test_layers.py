"""The rooms of the two packages: who may import whom, and by which door each third-party library comes in.

A room imports from lower floors only, never from a neighbour on its own floor. `unle_bench`, the benchmark and the
paper, stands on the public names of `unle`, which knows nothing of it. The rules are data, below; the walk reads the
syntax tree of every file, so an import hidden inside a function counts as well.
"""

import ast
import functools
import importlib
from pathlib import Path

import pytest

import unle

SOURCE = Path(__file__).parents[1] / "src"

LIBRARY = {
    "arrays": 0,
    "compile_cache": -1,
    "compiling": 0,
    "errors": -1,  # imported by all others
    "progress": -1,  # needs nothing of the others
    "space": 1,
    "store": 1,
    "simulators": 2,
    "models": 2,
    "samplers": 2,
    "train": 3,
    "posterior": 3,
    "methods": 4,
    "diagnose": 5,
    "plot": 6,
    "report": 7,  # shows what `plot` draws
    "cli": 8,
    "__main__": 9,
    "__init__": 9,  # the public names: may import from every floor
}
BENCHMARK = {
    "__init__": 0,  # names and lazy imports only
    "pyloric": 1,  # a simulator
    "plot": 1,
    "tasks": 2,
    "methods": 3,
    "results": 4,
    "sweep": 5,
    "paper": 5,
    "adversary": 6,
    "cli": 7,
}
FLOORS = {"unle": LIBRARY, "unle_bench": BENCHMARK}

# library -> the rooms of `unle` that may import it. What is not listed (numpy, jax, ...) is at home everywhere.
LIBRARY_DOORS = {
    "blackjax": {"samplers"},
    "optax": {"train", "diagnose"},
    "flowjax": {"models"},
    "paramax": {"models"},
    "arviz_base": {"posterior", "diagnose"},
    "arviz_stats": {"posterior", "diagnose"},
    "arviz": set(),
    "xarray": {"posterior", "diagnose"},
    "sklearn": {"diagnose"},
    "matplotlib": {"plot"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "sqlite3": {"store"},
    "numpyro": {"space"},
    "numba": set(),
    "distributed": {"simulators"},
    "dask": {"simulators"},
    "cloudpickle": {"simulators"},
    "pyarrow": {"store"},
    "typer": {"cli"},
    "rich": {"cli", "progress"},
    "pickle": set(),
    "unle_bench": set(),
    "sbibm": set(),
    "torch": set(),
    "sbi": set(),
}
# The same for `unle_bench`; of what is not listed here, nothing may come in.
BENCHMARK_DOORS = dict.fromkeys(LIBRARY_DOORS, set[str]()) | {
    "matplotlib": {"plot"},
    "sqlite3": {"results"},
    "numpyro": {"tasks", "adversary"},
    "numba": {"pyloric"},
    "typer": {"cli"},
    "rich": {"cli"},
    "sbibm": {"tasks"},
    "torch": {"methods"},  # a script that the Python of another environment runs
    "sbi": {"methods"},
}
DOORS = {"unle": LIBRARY_DOORS, "unle_bench": BENCHMARK_DOORS}

# Imported only inside functions: slow to import, or optional.
LAZY = {
    "arviz_base",
    "arviz_stats",
    "xarray",
    "sklearn",
    "matplotlib",
    "jinja2",
    "markupsafe",
    "distributed",
    "dask",
    "cloudpickle",
    "pyarrow",
    "flowjax",
    "paramax",
    "sbibm",
    "torch",
    "sbi",
    "numba",
}

# Rooms whose code runs in simulator workers, where jax is slow to import and may deadlock after a fork.
WITHOUT_JAX = {"unle": {"arrays", "simulators", "errors", "progress"}, "unle_bench": {"__init__", "pyloric"}}
# The exception runs in the driver, and imports jax only when a JAX simulator is called.
IN_THE_DRIVER = {Path("unle/simulators/jax_simulators.py")}
# Engines in JAX and in Numba: these files, and nobody who imports them when a module loads.
ENGINES = {Path("unle_bench/pyloric/in_jax.py"): {"jax"}, Path("unle_bench/pyloric/compiled.py"): {"numba"}}


def room_of(file: Path, package: Path) -> str:
    relative = file.relative_to(package)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(file: Path, source: Path):
    """Yield (line, module, imported names, whether at module level) for every import, relative ones resolved."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    package = list(file.relative_to(source).parts[:-1])
    for node in ast.walk(tree):
        if id(node) in for_types:  # never run
            continue
        at_top = id(node) not in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, (), at_top
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parents, *(node.module.split(".") if node.module else [])])
            yield node.lineno, module, tuple(alias.name for alias in node.names), at_top


def violations(source: Path) -> list[str]:
    """Return one sentence per broken rule."""
    return [
        sentence
        for package in FLOORS
        for file in sorted((source / package).rglob("*.py"))
        for sentence in _violations_of(file, source, package)
    ]


def _violations_of(file: Path, source: Path, package: str) -> list[str]:
    room, path = room_of(file, source / package), file.relative_to(source)
    if room not in FLOORS[package]:
        return [f"{path}: the room `{room}` has no floor; add it in this test."]
    sentences = []
    for line, module, names, at_top in imports_of(file, source):
        place, (top, *rest) = f"{path}:{line}", module.split(".")
        if top == package:
            # `from unle import samplers` names the room in its second half
            for other in [rest[0]] if rest else names or ["__init__"]:
                sentences += _floor(place, room, other, FLOORS[package])
            modules = [
                Path(*module.split("."), *tail).with_suffix(".py") for tail in ((), *((name,) for name in names))
            ]
            if at_top and any(engine in ENGINES for engine in modules):
                sentences.append(f"{place}: {module} has an engine; import it inside the function.")
            continue
        if package == "unle_bench" and top == "unle":
            sentences += _private(place, module, names)
            continue
        doors = DOORS[package]
        if top in doors and room not in doors[top]:
            allowed = " or ".join(sorted(doors[top])) or "nothing at all"
            sentences.append(f"{place}: `{room}` imports {top}; only {allowed} may.")
        if top in ENGINES.get(path, ()):
            continue
        if top in LAZY and at_top:
            sentences.append(f"{place}: {top} is imported when the module loads; move it into the function.")
        in_worker = room in WITHOUT_JAX[package] and (at_top or path not in IN_THE_DRIVER)
        if top in {"jax", "jaxlib", "equinox"} and in_worker:
            sentences.append(f"{place}: `{room}` runs in simulator workers and must not import {top}.")
        if any(part.startswith("_") and part != "__future__" for part in (top, *rest)):
            sentences.append(f"{place}: {module} is private to another library.")
    return sentences


def _floor(place: str, room: str, other: str, floors: dict[str, int]) -> list[str]:
    if other not in floors:  # a public name taken from the package itself
        other = "__init__"
    if other == room or floors[other] < floors[room] or (room == "__init__" and floors[room] > 0):
        return []
    relation = "the same floor as" if floors[other] == floors[room] else "above"
    return [f"{place}: `{room}` imports `{other}`, which is {relation} it; rooms import from lower floors only."]


def _private(place: str, module: str, names: tuple[str, ...]) -> list[str]:
    """Complain about what is no public name: those of `unle` and of its rooms are in their `__all__`."""
    if module.count(".") > 1 or (module != "unle" and not names):
        return [f"{place}: {module} is no public module of unle; import its names from the room."]
    public = _public_names(module)
    return [f"{place}: {name} is not in {module}.__all__." for name in names if name not in public]


@functools.cache
def _public_names(module: str) -> list[str]:
    """Return `__all__`; it is read from the room's file if it is a list there, since importing takes a while."""
    if module == "unle":
        return unle.__all__
    base = SOURCE.joinpath(*module.split("."))
    tree = ast.parse((base / "__init__.py" if base.is_dir() else base.with_suffix(".py")).read_text(encoding="utf-8"))
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (names,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == "__all__")
    return ast.literal_eval(names) if isinstance(names, ast.List) else importlib.import_module(module).__all__


def test_imports_look_down_and_libraries_use_their_doors():
    sentences = violations(SOURCE)
    assert not sentences, "\n" + "\n".join(sentences)


def test_the_walk_sees_both_packages():
    rooms = {
        (package, room_of(file, SOURCE / package)) for package in FLOORS for file in (SOURCE / package).rglob("*.py")
    }
    assert {("unle", "errors"), ("unle", "store"), ("unle_bench", "tasks"), ("unle_bench", "adversary")} <= rooms
    assert {file.name for file in SOURCE.iterdir() if file.is_dir() and file.name.isidentifier()} == set(FLOORS)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("unle/space/a.py", "from unle.train import loop", "`space` imports `train`, which is above it"),
        ("unle/models/a.py", "import unle.samplers.mala", "which is the same floor as it"),
        ("unle/train/a.py", "def f():\n    from unle.posterior import draws", "which is the same floor as it"),
        ("unle/samplers/a.py", "from ..methods import aunle", "`samplers` imports `methods`"),
        ("unle/samplers/a.py", "from unle import cli", "`samplers` imports `cli`"),
        ("unle/samplers/a.py", "import unle", "`samplers` imports `__init__`"),
        ("unle/train/a.py", "import blackjax.mcmc", "only samplers may"),
        ("unle/plot/a.py", "import matplotlib.pyplot as plt", "move it into the function"),
        ("unle/simulators/a.py", "import jax.numpy as jnp", "must not import jax"),
        ("unle/store/a.py", "def f():\n    import pickle", "only nothing at all may"),
        ("unle/train/a.py", "from jax._src import core", "private to another library"),
        ("unle/utils/a.py", "", "has no floor"),
        ("unle/cli/a.py", "def f():\n    from unle_bench import task", "`cli` imports unle_bench"),
        ("unle/__init__.py", "from unle_bench import task", "`__init__` imports unle_bench"),
        ("unle_bench/plot/a.py", "from unle.plot.style import style", "no public module"),
        ("unle_bench/plot/a.py", "def f():\n    import unle.plot", "no public module"),
        ("unle_bench/plot/a.py", "from unle.plot import LEARNED, _SETTINGS", "_SETTINGS is not in unle.plot.__all__"),
        ("unle_bench/plot/a.py", "from unle import AUNLE, compiling", "compiling is not in unle.__all__"),
        ("unle_bench/plot/a.py", "def f():\n    from unle_bench.cli import VERBS", "`plot` imports `cli`"),
        ("unle_bench/adversary/a.py", "import sqlite3", "only results may"),
        ("unle_bench/adversary/a.py", "import blackjax", "only nothing at all may"),
        ("unle_bench/tasks/a.py", "from unle_bench.pyloric.in_jax import run", "import it inside the function"),
        ("unle_bench/tasks/a.py", "from unle_bench.pyloric import in_jax", "import it inside the function"),
        ("unle_bench/__init__.py", "import jax", "must not import jax"),
        ("unle_bench/__init__.py", "from unle_bench.tasks.task import Task", "`__init__` imports `tasks`"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, file, text, complaint):
    planted = tmp_path / file
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    (sentence,) = violations(tmp_path)
    assert complaint in sentence


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("unle/train/a.py", "from unle.samplers import Mala\nimport optax\nimport jax"),
        ("unle/plot/a.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("unle/samplers/a.py", "from .mala import Mala\nfrom unle.errors import InputError"),
        ("unle/__init__.py", "from .methods import AUNLE"),
        ("unle_bench/cli/a.py", "import typer\nfrom unle.cli import say\nfrom unle_bench.tasks import slcp"),
        ("unle_bench/tasks/a.py", "import unle\nfrom unle import Prior\nfrom unle.space import XSpace"),
    ],
)
def test_a_proper_import_is_not_reported(tmp_path, file, text):
    planted = tmp_path / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    assert violations(tmp_path) == []
