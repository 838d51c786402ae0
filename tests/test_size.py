"""How large a function may be, and that every public method says what it does, or overrides one that does."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import unle

SOURCE = Path(unle.__file__).parent
MOST_LINES, MOST_ARGUMENTS = 80, 10


def functions(text):
    """Return (name, lines, arguments) of all functions in a source text."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            names += [argument.arg for argument in (given.vararg, given.kwarg) if argument is not None]
            own = names[:1] in (["self"], ["cls"])
            found.append((node.name, node.end_lineno - node.lineno + 1, len(names) - own))
    return found


def test_functions_are_short_and_take_few_arguments():
    large = [
        f"{file.relative_to(SOURCE)}: {name} has {lines} lines and {arguments} arguments"
        for file in sorted(SOURCE.rglob("*.py"))
        for name, lines, arguments in functions(file.read_text(encoding="utf-8"))
        if lines > MOST_LINES or arguments > MOST_ARGUMENTS
    ]
    assert not large


def test_what_is_too_large_is_found():
    many = ", ".join(f"a{i}" for i in range(10))
    assert functions(f"def f({many}): pass") == [("f", 1, 10)]
    assert functions(f"class A:\n    def f(self, {many}, *, b, **c):\n        pass\n") == [("f", 2, 12)]
    assert functions("def f():\n" + "    x = 1\n" * 80)[0][1] == MOST_LINES + 1


def undocumented(classes):
    """Return public methods and properties that have no docstring, not even in a class above."""
    return [
        f"{cls.__module__}.{cls.__qualname__}.{name}"
        for cls in classes
        for name, member in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod))
        and not any(getattr(vars(above).get(name), "__doc__", None) for above in cls.__mro__)
    ]


@pytest.mark.parametrize(
    "room", ["methods", "models", "posterior", "samplers", "simulators", "space", "store", "train"]
)
def test_methods_are_documented_where_they_are_introduced(room):
    package = importlib.import_module(f"unle.{room}")
    modules = [importlib.import_module(f"unle.{room}.{found.name}") for found in pkgutil.iter_modules(package.__path__)]
    classes = [cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)]
    own = {cls for cls in classes if cls.__module__.startswith("unle.") and not cls.__name__.startswith("_")}
    assert not undocumented(own)


def test_a_method_without_a_word_is_found():
    class Above:
        def said(self):
            """Say it."""

    class Below(Above):
        def said(self):
            return 1

        def unsaid(self):
            return 2

    assert [name.rsplit(".", 1)[1] for name in undocumented([Below])] == ["unsaid"]
