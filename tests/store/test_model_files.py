import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from unle.errors import InputError, StoreError
from unle.store.model_files import load_module, read_note, save_module
from unle.store.storable_classes import storable


@storable
def cube(x):
    return x**3


@storable
class Inner(eqx.Module):
    weight: jax.Array
    table: np.ndarray
    names: tuple[str, ...] = eqx.field(static=True)

    def __check_init__(self):
        if len(self.names) != 2:
            raise ValueError("two names are needed")


@storable
class Outer(eqx.Module):
    parts: list
    settings: dict
    scale: float
    depth: int
    on: bool
    nothing: None
    low: float
    key: jax.Array
    half: jax.Array
    count: np.float32
    activation: object = eqx.field(static=True)
    function: object = eqx.field(static=True)


class Described:
    """Stored by its own description, as a prior is."""

    def __init__(self, low):
        self.low = low

    def spec(self):
        return {"low": self.low}

    @classmethod
    def from_spec(cls, spec):
        return cls(spec["low"])


class Unknown(eqx.Module):
    weight: jax.Array


@pytest.fixture
def model():
    inner = Inner(jnp.arange(3.0), np.array([1.0, np.pi]), ("a", "b"))
    return Outer(
        parts=[inner, (1, "two", None)],
        settings={"lr": 0.1, "steps": jnp.array([1, 2])},
        scale=0.1,
        depth=3,
        on=True,
        nothing=None,
        low=-float("inf"),
        key=jr.key(3),
        half=jnp.array([0.5, 1.5], dtype=jnp.bfloat16),
        count=np.float32(2.5),
        activation=jax.nn.silu,
        function=cube,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "likelihood"


def edit(path, change):
    file = path.with_suffix(".json")
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_a_tree_comes_back_as_it_was(path, model):
    save_module(path, model, note={"seed": 7, "loss": float("nan"), "low": np.array([1.0])})
    again = load_module(path)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    for old, new in zip(jax.tree.leaves(model), jax.tree.leaves(again), strict=True):
        assert type(old) is type(new)
        if eqx.is_array(old) and jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            old, new = jr.key_data(old), jr.key_data(new)
        assert getattr(old, "dtype", None) == getattr(new, "dtype", None)
        assert np.array_equal(old, new)
    assert again.activation is jax.nn.swish
    assert again.function is cube
    assert again.parts[0].names == ("a", "b")
    assert read_note(path) == {"seed": 7, "loss": "nan", "low": [1.0]}
    assert json.loads(path.with_suffix(".json").read_text())["versions"]["jax"] == jax.__version__


def test_a_network_computes_the_same_after_loading(path):
    network = eqx.nn.MLP(2, 1, 8, 2, activation=jax.nn.swish, key=jr.key(0))
    save_module(path, network)
    x = jnp.array([0.3, -1.2])
    assert load_module(path)(x) == network(x)


def test_an_object_with_a_spec_is_stored_by_it(path, monkeypatch):
    monkeypatch.setitem(_classes(), "tests:Described", Described)
    save_module(path, (Described(0.5), 1))
    loaded, one = load_module(path)
    assert isinstance(loaded, Described)
    assert (loaded.low, one) == (0.5, 1)


def _classes():
    from unle.store import storable_classes

    return storable_classes._CLASSES


def test_saving_again_replaces(path, model):
    save_module(path, model, note={"round": 1})
    save_module(path, {"weight": jnp.ones(2)}, note={"round": 2})
    assert load_module(path)["weight"].tolist() == [1.0, 1.0]
    assert read_note(path) == {"round": 2}
    assert sorted(os.listdir(path.parent)) == ["likelihood.json", "likelihood.npz"]


def test_dying_between_the_two_files_leaves_no_model(path, model, monkeypatch):
    save_module(path, model)
    monkeypatch.setattr("unle.store.model_files.write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_module(path, {"weight": jnp.ones(2)})
    with pytest.raises(StoreError, match="could not be read"):
        load_module(path)


# --- what must be refused when saving


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (Unknown(jnp.ones(1)), "Unknown.*storable"),
        (lambda x: x, "lambda.*at model"),
        ([1, {"f": os.system}], r"at model\[1\]\['f'\]"),
        ({1: 2}, "strings for keys"),
        (np.array([object()]), "Python objects"),
    ],
)
def test_what_cannot_be_described_is_refused_before_anything_is_written(path, value, complaint):
    with pytest.raises(InputError, match=complaint):
        save_module(path, value)
    assert os.listdir(path.parent) == []


def test_storable_refuses_what_could_not_be_found_again():
    with pytest.raises(InputError, match="lambda"):
        storable(lambda x: x)
    with pytest.raises(InputError, match="dataclass"):
        storable(Described)


# --- what must be refused when loading


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "equinox.nn:Conv",
        "unle.store.model_files:Path",  # in one of our modules, but not ours
        "unle.errors:StoreError",  # ours, but not a module
        "unle.nowhere:Model",
        "unle.cli:main",
        "unle.store.model_files:load_module.__globals__",
        "unle..os:system",
        "",
    ],
)
@pytest.mark.parametrize("body", ["fields", "spec"])
def test_a_foreign_class_is_refused(path, model, name, body):
    save_module(path, model)
    edit(path, lambda content: content.update(tree={"class": name, body: {}}))
    with pytest.raises(StoreError, match="not one that stored models may hold") as caught:
        load_module(path)
    assert "\n" not in str(caught.value)


def test_a_foreign_function_is_refused(path, model):
    save_module(path, model)
    edit(path, lambda content: content["tree"]["fields"].update(function={"function": "os.system"}))
    with pytest.raises(StoreError, match="the function 'os.system' is not one"):
        load_module(path)


@pytest.mark.parametrize(
    "node",
    [
        {"pickle": "gASVAAAA"},
        {"array": 99, "kind": "jax", "dtype": "float32", "shape": [3]},
        {"array": 0, "kind": "jax", "dtype": "float64", "shape": [3]},
        {"array": 0, "kind": "jax", "dtype": "float32", "shape": [4]},
        {"array": 0, "kind": "jax", "dtype": "O", "shape": [3]},
        {"array": 0, "kind": "key", "dtype": "float32", "shape": [3], "implementation": "mine"},
        {"value": {"a": 1}},
        {"float": "1e400"},
        None,
        [],
    ],
)
def test_a_changed_node_is_refused(path, model, node):
    save_module(path, model)
    edit(path, lambda content: content["tree"]["fields"].update(scale=node))
    with pytest.raises(StoreError, match="cannot be loaded|damaged"):
        load_module(path)


def test_other_fields_are_refused_by_name(path, model):
    save_module(path, model)
    edit(path, lambda content: content["tree"]["fields"].pop("scale"))
    with pytest.raises(StoreError, match=r"other fields .*\(scale\)"):
        load_module(path)


def test_the_checks_of_a_class_are_run_on_loading(path, model):
    save_module(path, model)
    edit(
        path,
        lambda content: content["tree"]["fields"]["parts"]["list"][0]["fields"].update(names={"tuple": []}),
    )
    with pytest.raises(StoreError, match="two names are needed"):
        load_module(path)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("harm", ["missing", "truncated", "empty", "noise"])
def test_a_damaged_file_is_refused(path, model, suffix, harm):
    save_module(path, model)
    file = path.with_suffix(suffix)
    content = file.read_bytes()
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes({"truncated": content[: len(content) // 2], "empty": b"", "noise": b"\x80\x04K"}[harm])
    with pytest.raises(StoreError, match=f"likelihood{suffix}"):
        load_module(path)


def test_arrays_that_hold_a_pickle_are_refused(path, model, tmp_path):
    import hashlib

    save_module(path, model)
    np.savez(tmp_path / "evil.npz", array_0=np.array([Described(1)], dtype=object))
    content = (tmp_path / "evil.npz").read_bytes()
    path.with_suffix(".npz").write_bytes(content)
    edit(path, lambda description: description.update(arrays_sha256=hashlib.sha256(content).hexdigest()))
    with pytest.raises(StoreError, match="damaged or was altered"):
        load_module(path)


def test_a_later_format_is_refused(path, model):
    save_module(path, model)
    edit(path, lambda content: content.update(format=99))
    with pytest.raises(StoreError, match="format 99"):
        load_module(path)


def test_a_prior_is_stored_by_its_spec(path):
    from unle.space.prior import Prior

    prior = Prior.uniform(np.array([-1.0, 0.0]), np.array([1.0, 5.0]), names=["a", "b"])
    save_module(path, {"prior": prior})
    again = load_module(path)["prior"]
    assert again.names == ("a", "b")
    np.testing.assert_array_equal(again.sample(5, seed=1), prior.sample(5, seed=1))
    edit(path, lambda content: content["tree"]["dict"]["prior"].update(spec={"family": "os.system"}))
    with pytest.raises(StoreError, match="damaged or was altered"):
        load_module(path)
