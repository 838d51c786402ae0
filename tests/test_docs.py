"""The documentation names what exists, links somewhere, and its code runs."""

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import unle
from unle.models import Ensemble, NoEnergy, TiltedModel
from unle.space import fit_theta_space, fit_x_space
from unle.train import make_splits

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


def rows_of_the_api_page() -> dict[str, str]:
    """Return the first cell of every table row that begins with a public name."""
    found = re.findall(r"^\| `(\w+)(.*?)` \|", (DOCS / "api.md").read_text(), flags=re.MULTILINE)
    return dict(found)


def missing(name: str, signature: str) -> list[str]:
    """Return the arguments that a line of the page leaves out or gives another default."""
    lacks = []
    for parameter in inspect.signature(getattr(unle, name)).parameters.values():
        default = parameter.default
        simple = default is None or (isinstance(default, int | float) and default == default)
        written = f"{parameter.name}={default!r}" if simple else parameter.name
        if not re.search(rf"\b{re.escape(written)}\b", signature):
            lacks.append(written)
    return lacks


def test_every_public_name_is_on_the_api_page():
    page = (DOCS / "api.md").read_text()
    assert [name for name in unle.__all__ if f"`{name}" not in page] == []


@pytest.mark.parametrize(("name", "signature"), [row for row in rows_of_the_api_page().items() if row[1]])
def test_signatures_on_the_api_page_are_those_of_the_code(name, signature):
    assert missing(name, signature) == []


def test_a_wrong_default_or_a_forgotten_argument_is_caught():
    assert missing("FixedBase", "(scale=9.0)") == ["scale=10.0"]
    assert missing("batched", "()") == ["function"]
    assert {"AUNLE", "Prior", "TiltedTraining", "Nuts", "z_uniformity"} <= set(rows_of_the_api_page())


def test_python_blocks_compile():
    for page in PAGES:
        for block in python_blocks(page):
            compile(block, str(page), "exec")


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, DOCS.parent / "README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#:]*\.md)?(?:#([^)]+))?\)", page.read_text()):
            other = page.parent / target if target else page
            assert other.exists(), f"{page.name} links to {target}"
            headings = re.findall(r"^#+ (.+)$", other.read_text(), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert not anchor or anchor in slugs, f"{page.name} links to {target}#{anchor}"


def linear_fit(prior):
    """Stand in for AUNLE: a linear Gaussian likelihood and short chains, in seconds rather than minutes."""

    def fit(simulations, *, seed=0):
        theta_space, x_space = fit_theta_space(simulations.valid_theta), fit_x_space(simulations.valid_x)
        t = jax.vmap(theta_space.forward)(jnp.asarray(simulations.valid_theta, jnp.float32))
        w = jax.vmap(x_space.forward)(jnp.asarray(simulations.valid_x, jnp.float32))
        splits = make_splits(jr.key(seed), len(t), members=2)
        settings = unle.train.GaussianTraining(width=4, depth=1, iterations=1)
        bases = settings.fit(jr.key(seed), t, w, splits)
        likelihood = Ensemble(theta_space, x_space, TiltedModel(bases, NoEnergy()), jnp.zeros(2))
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
