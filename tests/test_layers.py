"""The rooms of the house: who may import whom, and by which door each third-party library comes in.

A room imports from lower floors only, never from a neighbour on its own floor. The rules are data, below;
the walk reads the syntax tree of every file, so an import hidden inside a function counts as well.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "unle"

FLOORS = {
    "compiling": 0,
    "errors": 0,
    "progress": 0,
    "space": 1,
    "store": 1,
    "pyloric": 1,  # a simulator that ships with the package
    "simulators": 2,
    "models": 2,
    "samplers": 2,
    "train": 3,
    "posterior": 3,
    "methods": 4,
    "diagnose": 5,
    "plot": 6,
    "report": 7,  # shows what `plot` draws
    "bench": 7,
    "commands": 8,
    "cli": 9,
    "__main__": 10,
    "__init__": 10,  # the public names: may import from every floor
}

# library -> the rooms that may import it. What is not listed (numpy, jax, ...) is at home everywhere.
DOORS = {
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
    "numpyro": {"space", "bench"},
    "numba": {"pyloric"},
    "distributed": {"simulators"},
    "dask": {"simulators"},
    "cloudpickle": {"simulators"},
    "pyarrow": {"store"},
    "typer": {"cli", "commands"},
    "rich": {"cli", "commands", "progress"},
    "sbibm": {"bench"},
    "pickle": set(),
    "torch": {"bench"},  # one script there is run by the Python of another environment
    "sbi": {"bench"},
}

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
WITHOUT_JAX = {"simulators", "pyloric", "errors", "progress"}
# The exception runs in the driver, and imports jax only when a JAX simulator is called.
IN_THE_DRIVER = {Path("simulators/jax_simulator.py")}
# Engines in JAX and in Numba: these files, and nobody who imports them when a module loads.
ENGINES = {Path("pyloric/in_jax.py"): {"jax"}, Path("pyloric/compiled.py"): {"numba"}}


def room_of(file: Path, source: Path) -> str:
    relative = file.relative_to(source)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(file: Path, source: Path):
    """Yield (line, dotted name, whether at module level) for every import, relative ones resolved."""
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for node in ast.walk(function)
    }
    package = ["unle", *file.relative_to(source).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *(node.module.split(".") if node.module else [])])
            # `from unle import samplers` names the room in its second half
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "unle" else [base]
        else:
            continue
        for name in names:
            yield node.lineno, name, id(node) not in inside


def violations(source: Path) -> list[str]:
    """Return one sentence per broken rule."""
    found = []
    for file in sorted(source.rglob("*.py")):
        room = room_of(file, source)
        where = file.relative_to(source)
        if room not in FLOORS:
            found.append(f"{where}: the room `{room}` has no floor; add it to FLOORS in this test.")
            continue
        for line, name, at_top in imports_of(file, source):
            top, *rest = name.split(".")
            if top == "unle":
                if at_top and rest and Path(*rest).with_suffix(".py") in ENGINES:
                    found.append(f"{where}:{line}: {name} is an engine; import it inside the function.")
                found += _floor(f"{where}:{line}", room, rest[0] if rest else "__init__")
                continue
            if top in DOORS and room not in DOORS[top]:
                doors = " or ".join(sorted(DOORS[top])) or "nothing at all"
                found.append(f"{where}:{line}: `{room}` imports {top}; only {doors} may.")
            if top in ENGINES.get(where, ()):
                continue
            if top in LAZY and at_top:
                found.append(f"{where}:{line}: {top} is imported when the module loads; move it into the function.")
            if top in {"jax", "jaxlib", "equinox"} and room in WITHOUT_JAX and (at_top or where not in IN_THE_DRIVER):
                found.append(f"{where}:{line}: `{room}` runs in simulator workers and must not import {top}.")
            if any(part.startswith("_") and part != "__future__" for part in (top, *rest)):
                found.append(f"{where}:{line}: {name} is private to another library.")
    return found


def _floor(where: str, room: str, other: str) -> list[str]:
    if other == room or room == "__init__":
        return []
    if other not in FLOORS:  # a public name taken from the package itself
        other = "__init__"
    if FLOORS[other] < FLOORS[room]:
        return []
    relation = "the same floor as" if FLOORS[other] == FLOORS[room] else "above"
    return [f"{where}: `{room}` imports `{other}`, which is {relation} it; rooms import from lower floors only."]


def test_imports_look_down_and_libraries_use_their_doors():
    found = violations(SOURCE)
    assert not found, "\n" + "\n".join(found)


def test_the_walk_sees_the_package():
    rooms = {room_of(file, SOURCE) for file in SOURCE.rglob("*.py")}
    assert {"errors", "progress", "store", "simulators"} <= rooms


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("space/a.py", "from unle.train import loop", "`space` imports `train`, which is above it"),
        ("models/a.py", "import unle.samplers.mala", "which is the same floor as it"),
        ("train/a.py", "def f():\n    from unle.posterior import draws", "which is the same floor as it"),
        ("samplers/a.py", "from ..methods import aunle", "`samplers` imports `methods`"),
        ("samplers/a.py", "from unle import cli", "`samplers` imports `cli`"),
        ("samplers/a.py", "import unle", "`samplers` imports `__init__`"),
        ("train/a.py", "import blackjax.mcmc", "only samplers may"),
        ("plot/a.py", "import matplotlib.pyplot as plt", "move it into the function"),
        ("simulators/a.py", "import jax.numpy as jnp", "must not import jax"),
        ("store/a.py", "def f():\n    import pickle", "only nothing at all may"),
        ("train/a.py", "from jax._src import core", "private to another library"),
        ("utils/a.py", "", "has no floor"),
        ("bench/a.py", "from unle.pyloric.in_jax import run", "import it inside the function"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path, file, text, complaint):
    planted = tmp_path / file
    planted.parent.mkdir(parents=True)
    planted.write_text(text)
    (found,) = violations(tmp_path)
    assert complaint in found


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train/a.py", "from unle.samplers import Mala\nimport optax\nimport jax"),
        ("plot/a.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("samplers/a.py", "from .mala import Mala\nfrom unle.errors import InputError"),
        ("__init__.py", "from unle.bench import task\nfrom .methods import AUNLE"),
        ("cli.py", "import typer\nfrom unle.bench import task"),
    ],
)
def test_a_proper_import_is_not_reported(tmp_path, file, text):
    planted = tmp_path / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    assert violations(tmp_path) == []
