"""The documentation names what exists, links somewhere, and its code runs."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import unle
from unle.models import ConditionalLikelihood, EnergyModel, Ensemble, NoEnergy
from unle.posterior import TemperedSmc, WalkingExchange, WarmChains
from unle.samplers import Sweep
from unle.space import fit_theta_space, fit_x_space
from unle.train import DataParticles, Descent, EnergyTraining, GaussianTraining, Rows, ScoreMatching, make_splits

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
README = DOCS.parent / "README.md"


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def documented() -> list[str]:
    """Return the dotted names whose docstrings are on the API pages."""
    pages = sorted((DOCS / "api").glob("*.md"))
    return [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE)]


def resolve(dotted: str) -> object:
    """Return what a dotted name means; its last part is an attribute of the module before it."""
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_public_name_is_on_an_api_page():
    names = {dotted.rpartition(".")[2] for dotted in documented()}
    assert sorted(set(unle.__all__) - names - {"__version__"}) == []


@pytest.mark.parametrize("dotted", documented())
def test_what_the_api_pages_name_exists_and_has_a_docstring(dotted):
    assert resolve(dotted).__doc__


def test_a_name_that_is_gone_is_caught():
    with pytest.raises(AttributeError):
        resolve("unle.methods.Nothing")


def test_no_name_is_on_two_api_pages():
    assert sorted(documented()) == sorted(set(documented()))


def test_python_blocks_compile():
    for page in [*PAGES, README]:
        for block in python_blocks(page):
            compile(block, str(page), "exec")


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, README, README.with_name("CONTRIBUTING.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?(?:#([^)]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            assert other.exists(), f"{page.name} links to {target}"
            headings = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert not anchor or anchor in slugs, f"{page.name} links to {target}#{anchor}"


def test_the_map_shows_the_rooms_as_they_are():
    spec = importlib.util.spec_from_file_location("rooms_map", DOCS.parent / "scripts" / "rooms_map.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    on_the_map = {room for rooms in script.floors().values() for room in rooms}
    assert on_the_map == {
        path.stem for path in (DOCS.parent / "src" / "unle").glob("[a-z]*") if path.name != "py.typed"
    }
    assert script.PICTURE.read_text(encoding="utf-8") == script.picture(), "python scripts/rooms_map.py draws it anew"


def linear_fit(prior):
    """Stand in for AUNLE: a linear Gaussian likelihood and short chains, in seconds rather than minutes."""

    def fit(simulations, *, seed=0):
        theta_space, x_space = fit_theta_space(simulations.valid_theta), fit_x_space(simulations.valid_x)
        t = jax.vmap(theta_space.forward)(jnp.asarray(simulations.valid_theta, jnp.float32))
        w = jax.vmap(x_space.forward)(jnp.asarray(simulations.valid_x, jnp.float32))
        splits = make_splits(jr.key(seed), len(t), members=2)
        settings = GaussianTraining(width=4, depth=1, iterations=1)
        bases = settings.fit(jr.key(seed), Rows(t, w, splits))
        likelihood = Ensemble(theta_space, x_space, EnergyModel(bases, NoEnergy()), jnp.zeros(2))
        return unle.Posterior(prior, likelihood, unle.Chains(unle.samplers.RandomWalk(), chains=4, warm_up=20))

    return SimpleNamespace(fit=fit)


@pytest.mark.parametrize("name", ["simulators.md", "cluster.md", "storage.md"])
def test_the_pages_about_simulating_run_from_top_to_bottom(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for block in python_blocks(DOCS / name):
        exec(compile(block, name, "exec"), namespace)
    assert namespace["simulations"].valid.all()


@pytest.mark.slow
def test_the_quickstart_runs_from_top_to_bottom(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(vars(unle), "AUNLE", linear_fit)
    namespace = {}
    for block in python_blocks(DOCS / "quickstart.md"):
        exec(compile(block.replace("10_000", "1_000"), "quickstart.md", "exec"), namespace)
    assert {"posterior.png", "growth.json", "growth.npz", "growth_draws.nc"} <= {f.name for f in tmp_path.iterdir()}
    assert namespace["check"].verdict == "good"
    assert 0 < len(namespace["partly"].valid_x) < 1000


class Quick:
    """A method with small networks in place of its default settings; what a page sets itself is as the page says."""

    def __init__(self, method, **settings):
        self.method, self.settings = method, settings

    def __call__(self, *parts, **settings):
        return self.method(*parts, **self.settings | settings)

    def paper(self, *parts, **settings):
        method = self.method.paper(*parts, **{"iterations": 40} | settings)
        few = {
            "inner_moves": 5,
            "exchange": WalkingExchange(chains=50, warm_up=10),
            "sampler": WarmChains(chains=50, warm_up=10),
        }
        return replace(method, **few) if hasattr(method, "exchange") else method


def small_problem():
    """Return what the pages take as given: a simulator, its simulations, and a fit to them."""
    base = GaussianTraining(width=8, depth=1, iterations=100, batch=64, chunk=50)
    particles = DataParticles(n=256, pool=2048, validation=2048)
    energies = EnergyTraining(particles, width=8, depth=1, iterations=100, batch=64, chunk=50)
    sampler = TemperedSmc(islands=2, particles=600, sweep=Sweep(walks=6, langevin=0), settle=1)
    descent = Descent(iterations=100)
    prior = unle.Prior.uniform(low=[-1, -1], high=[1, 1], names=["a", "b"])
    simulator = unle.batched(lambda theta, rng: theta + 0.3 * rng.normal(size=theta.shape))
    simulations = unle.simulate(simulator, prior, 300, seed=0)
    quick = {
        "AUNLE": Quick(unle.AUNLE, base=base, training=energies, members=2, sampler=sampler),
        "SUNLE": Quick(unle.SUNLE, base=base, training=energies, members=2, sampler=sampler),
        "NLE": Quick(unle.NLE, training=descent, sampler=sampler),
        "SNLE": Quick(unle.SNLE, training=descent, sampler=sampler),
        "SMNLE": Quick(unle.SMNLE, base=base, training=ScoreMatching(descent=descent), reference=base),
    }
    posterior = quick["AUNLE"](prior).fit(simulations, seed=1)
    x_o = np.array([0.1, -0.2])
    given = {"unle": unle, "prior": prior, "simulator": simulator, "simulations": simulations, "x_o": x_o}
    return quick, given | {"posterior": posterior, "draws": posterior.sample(x_o, 400, seed=2)}


def one_member(given):
    """Return the conditional model of one member of the fit."""
    ensemble = given["posterior"].likelihood
    return ConditionalLikelihood(ensemble.theta_space, ensemble.x_space, jax.tree.map(lambda a: a[0], ensemble.models))


@pytest.fixture(scope="module")
def problem():
    return small_problem()


FEWER = {
    "10_000": "400",
    "1_000": "300",
    "budget=400": "budget=300",
    "rounds=10": "rounds=2",
    "lotka_volterra": "two_moons",
}
ALONE = ["quickstart.md", "simulators.md", "cluster.md", "storage.md"]  # these have tests of their own
ALONE += ["adversary.md", "pyloric.md"]  # tests/bench has fits of the adversary, and runs the other one


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unle.errors.UnleWarning")  # fits as small as these may well fail
@pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page) and page.name not in ALONE], ids=lambda p: p.stem
)
def test_the_examples_of_a_page_run(page, problem, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    quick, given = problem
    for name, method in quick.items():
        monkeypatch.setitem(vars(unle), name, method)
    namespace = given | {"key": jr.key(0), "theta": np.asarray(given["draws"]), "likelihood": one_member(given)}
    for block in python_blocks(page):
        for many, few in FEWER.items():
            block = block.replace(many, few)
        exec(compile(block, page.name, "exec"), namespace)


@pytest.mark.slow
def test_the_examples_of_the_readme_run_and_are_right():
    namespace, hours = {}, np.arange(1, 6)
    for block in python_blocks(README):  # AUNLE, then SUNLE
        exec(compile(block, "README.md", "exec"), namespace)
        growth, logs = namespace["draws"]["growth"], np.log(np.array(namespace["x_o"]) / 10)
        assert abs(growth.mean() - hours @ logs / (hours @ hours)) < growth.std() / 3


@pytest.mark.slow
def test_the_website_builds_without_a_warning_and_fetches_nothing(tmp_path):
    pytest.importorskip("material", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=DOCS.parent, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(script|img|iframe)[^>]+src="(https?:)?//', text), page.name
        assert not re.search(r'<link[^>]+rel="stylesheet"[^>]+href="(https?:)?//', text), page.name
        assert r"\(" not in re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL), f"{page.name}: a formula"
