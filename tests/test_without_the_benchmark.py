"""`unle` works without `unle_bench`, and says so where it would need it."""

import subprocess
import sys

HIDDEN = "import sys; sys.modules['unle_bench'] = None\nimport importlib.util\n" + (
    "real = importlib.util.find_spec\n"
    "importlib.util.find_spec = lambda name, *rest: None if name == 'unle_bench' else real(name, *rest)\n"
)


def python(code):
    return subprocess.run([sys.executable, "-c", HIDDEN + code], capture_output=True, text=True, check=False)


def test_a_task_says_which_package_is_missing():
    result = python("import unle\nunle.task('two_moons')")
    assert "needs the package unle_bench" in result.stderr
    assert "pip install" in result.stderr


def test_the_command_line_has_its_own_verbs_only():
    result = python("from unle.cli import main\nsys.argv = ['unle', '--help']\nmain()")
    assert result.returncode == 0, result.stderr
    assert " simulate " in result.stdout
    assert " bench " not in result.stdout


def test_a_model_that_would_be_a_task_is_refused_in_one_sentence():
    result = python("from unle.cli import main\nsys.argv = ['unle', 'run', 'two_moons']\nmain()")
    assert result.returncode == 1
    assert result.stderr.startswith("error: expected a Python file, or a built-in task of the package unle_bench")
