"""Fixtures for the whole suite: quiet, seeded, on the CPU, and strict where strictness costs nothing."""

# ruff: noqa: E402  (variables first: JAX reads them when it is imported)

import atexit
import os
import shutil
import tempfile
from importlib.metadata import version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # tolerances are for the CPU; set the variable to try others
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("UNLE_AHEAD", "0")  # two cores are busy with tests; most fits are never drawn from
FOLDER = tempfile.mkdtemp(prefix="unle-tests-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
os.environ["UNLE_STATE"] = FOLDER  # not the one of whoever runs the tests
# Processes share what they compile, with each other and with the next run; `make clean` removes it.
HERE = Path(__file__).parent
os.environ.setdefault("UNLE_CACHE", str(HERE.parent / ".pytest_cache" / "compiled"))
# Tests compile many programs and run them briefly: two thirds of their time would be the compiler's.  (Without any
# optimisation what runs takes longer than is won.  A flag that a later XLA does not know stops it, and is named.)
FLAGS = "--xla_backend_optimization_level=1"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones may have no such flags, and would stop
    FLAGS += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", FLAGS)

import jax
import jax.random as jr
import pytest

# By its file: the package is not to be imported before the type checks are in place, and JAX looks for the folder once.
_spec = spec_from_file_location("compile_cache_of_tests", HERE.parent / "src" / "unle" / "compile_cache.py")
_cache = module_from_spec(_spec)
_spec.loader.exec_module(_cache)
_cache.enable_compile_cache()

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Files that take longest come first: a long file that begins last leaves all processes but one waiting.
LONG = ("summaries", "methods", "test_cli.py", "statistical", "report", "train", "posterior", "samplers", "diagnose")
# Files that share fixtures of the session, and programs: they stay together.
TOGETHER = {f"tests/methods/{name}.py": "small AUNLE" for name in ("test_aunle", "test_laws")}
PROCESSES = {}  # group of tests -> the processes that ran some of them


def pytest_configure(config):
    # Not in pyproject.toml: read there, it would import the package before the type checks are in place.
    config.addinivalue_line("filterwarnings", "error::unle.errors.UnleWarning")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    def rank(item):
        room = item.path.relative_to(HERE).parts[0]
        return LONG.index(room) if room in LONG else len(LONG)

    items.sort(key=rank)


def group_of(nodeid):
    """Return what a test shares its process with: its file, or several files."""
    file = nodeid.split("::")[0]
    return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays in one process, or all of them would make its fixtures and compile its programs."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return ByGroup(config, log)


def pytest_runtest_logreport(report):
    PROCESSES.setdefault(group_of(report.nodeid), set()).add(getattr(report, "worker_id", ""))


def pytest_sessionfinish(session):
    torn = [group for group, processes in PROCESSES.items() if len(processes) > 1]
    if torn:  # all tests pass then, and take twice as long
        print(f"\nexpected every group of tests in one process; got several for {', '.join(torn[:3])}, ...")
        session.exitstatus = 1


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """No progress lines in test output; a test of the bars sets the variable itself."""
    monkeypatch.setenv("UNLE_PROGRESS", "0")


@pytest.fixture
def key():
    """One typed key from a fixed seed: split it, never use it twice."""
    return jr.key(20230706)


@pytest.fixture
def strict_keys():
    """Fail on a PRNG key that is used twice. For our own code: third-party samplers trip over it."""
    with jax.debug_key_reuse(True):
        yield


@pytest.fixture
def strict_ranks():
    """Fail on an implicit broadcast between arrays of different rank."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="session")
def chromium():
    """How playwright starts Chromium, where both are installed."""
    pytest.importorskip("playwright", reason="needs the extra browser")
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    return {"executable_path": BROWSER, "args": ["--no-sandbox", "--disable-gpu"]}


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        engine = driver.chromium.launch(**chromium)
        yield engine
        engine.close()
