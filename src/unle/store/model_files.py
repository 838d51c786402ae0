"""Fitted models on disk, without pickle: a JSON file that describes, and an .npz file with the arrays.

A model is a tree: equinox modules whose fields are arrays, numbers, strings, tuples, functions or further modules.
`save_module` walks that tree and writes two files,

    likelihood.json    the class of every module, the value of every plain field, versions, your note,
                       and a check sum of the other file
    likelihood.npz     the arrays, numbered in the order of the walk

and `load_module` builds the same tree again. No content of a file is ever run: a name in it is only looked up,

* as a class or function that `unle.store.storable_classes` knows: the modules of this library, a few of equinox, the
  usual activations, and what was given to `storable`;
* objects with `spec()` and `from_spec()`, such as a prior, are stored by their own description.

Other names are refused with a `StoreError`.

The JSON file is written last, and removed first when a model is replaced. A process that dies half way therefore leaves
no model rather than a wrong one.

Example:
    >>> import tempfile, equinox as eqx, jax, jax.random as jr
    >>> from unle.store.model_files import load_module, read_note, save_module
    >>> path = tempfile.mkdtemp() + "/net"
    >>> save_module(path, eqx.nn.MLP(2, 1, 8, 2, activation=jax.nn.swish, key=jr.key(0)), note={"seed": 0})
    >>> load_module(path).width_size, read_note(path)
    (8, {'seed': 0})
"""

import dataclasses
import hashlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from unle.errors import InputError, StoreError
from unle.store.safe_files import plain, read_json, versions, write_atomically, write_json
from unle.store.storable_classes import FUNCTIONS, Refusal, class_name, find_class, function_name
from unle.store.table_files import holds_simulations

FORMAT = 1
ADDED: dict[str, dict[str, Any]] = {"Posterior": {"summary": None, "x_names": ()}}  # fields that older files lack


def save_module(path: str | Path, module: Any, *, note: Mapping[str, Any] | None = None) -> None:
    """Write a model to `<path>.json` and `<path>.npz`: an equinox module, or a list, tuple or dictionary of such.

    `note` is what a reader should know about it (seed, settings, ...), made of numbers, strings, lists and
    dictionaries; `read_note` returns it.
    """
    arrays: list[np.ndarray] = []
    tree = _describe(module, "model", arrays)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_entry(i): array for i, array in enumerate(arrays)})
    content = buffer.getvalue()
    description = {
        "format": FORMAT,
        "versions": versions(),
        "note": plain(note or {}),
        "arrays_sha256": hashlib.sha256(content).hexdigest(),
        "tree": tree,
    }
    description_file, arrays_file = _files(path)
    if holds_simulations(arrays_file):
        raise StoreError(f"{arrays_file} holds simulations; try another name than {path} for the model.")
    try:
        description_file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{description_file} could not be replaced: {error.strerror or error}.") from error
    write_atomically(arrays_file, content)
    write_json(description_file, description)


def load_module(path: str | Path) -> Any:
    """Read the model that `save_module` wrote.

    Arrays come back as they were: jax arrays as jax arrays, numpy arrays as numpy arrays.  A model saved with 64-bit
    jax arrays comes back in 32 bits where jax is not set to use 64.
    """
    description_file, arrays_file = _files(path)
    description = _read_description(description_file)
    try:
        content = arrays_file.read_bytes()
    except OSError as error:
        raise StoreError(f"{arrays_file} could not be read: {error.strerror or error}.") from error
    if hashlib.sha256(content).hexdigest() != description.get("arrays_sha256"):
        raise StoreError(f"{arrays_file} is damaged or does not belong to {description_file.name}.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _build(description.get("tree"), arrays)
    except Refusal as refusal:
        raise StoreError(f"{description_file} cannot be loaded: {refusal}.") from refusal
    except Exception as error:  # whatever a damaged file leads to, down to the checks of the classes
        raise StoreError(f"{description_file} is damaged or was altered ({error}).") from error


def read_note(path: str | Path) -> dict[str, Any]:
    """Return the note that was saved with a model."""
    description_file, _ = _files(path)
    note = _read_description(description_file).get("note")
    if not isinstance(note, dict):
        raise StoreError(f"{description_file} is damaged: it has no note.")
    return note


def _files(path: str | Path) -> tuple[Path, Path]:
    path = Path(path)
    return path.with_name(path.name + ".json"), path.with_name(path.name + ".npz")


def _entry(index: int) -> str:
    return f"array_{index}"


def _read_description(file: Path) -> dict[str, Any]:
    description = read_json(file)
    if not isinstance(description, dict) or "tree" not in description:
        raise StoreError(f"{file} does not describe a model.")
    if description.get("format") != FORMAT:
        raise StoreError(f"{file} has format {description.get('format')}; this version reads format {FORMAT}.")
    return description


def _describe(value: Any, where: str, arrays: list[np.ndarray]) -> Any:
    """Return the JSON description of one node; append the arrays met on the way to `arrays`."""
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        return {"value": value} if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _describe_array(value, arrays)
    if type(value) in (list, tuple):
        items = [_describe(item, f"{where}[{i}]", arrays) for i, item in enumerate(value)]
        return {type(value).__name__: items}
    if type(value) is dict:
        if not all(isinstance(name, str) for name in value):
            raise InputError(f"expected a dictionary with strings for keys at {where}; got {list(value)[:3]}")
        return {"dict": {name: _describe(item, f"{where}[{name!r}]", arrays) for name, item in value.items()}}
    if hasattr(value, "spec") and hasattr(type(value), "from_spec"):
        return {"spec": plain(value.spec()), "class": class_name(type(value), where)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _describe(getattr(value, field.name), f"{where}.{field.name}", arrays)
            for field in dataclasses.fields(value)
        }
        return {"class": class_name(type(value), where), "fields": fields}
    if (name := function_name(value)) is not None:
        return {"function": name}
    raise InputError(
        f"expected only modules, arrays, plain values and known functions in a stored model; "
        f"got {value!r} at {where}; try unle.store.storable_classes.storable on the function or class"
    )


def _describe_array(value: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    node: dict[str, Any] = {"array": len(arrays), "kind": "jax" if isinstance(value, jax.Array) else "numpy"}
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        node |= {"kind": "key", "implementation": str(jr.key_impl(value))}
        value = jr.key_data(value)
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise InputError("expected arrays of numbers in a stored model; got an array of Python objects")
    node |= {"dtype": array.dtype.name, "shape": list(array.shape)}
    # numpy's own format does not know bfloat16 and its relatives: keep their bytes
    arrays.append(array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}"))
    return node


def _build(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Build the value that one node describes."""
    match node:
        case {"value": value} if value is None or isinstance(value, bool | int | float | str):
            return value
        case {"float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"array": int(index), "kind": str(kind), "dtype": str(dtype), "shape": list(shape)}:
            return _build_array(arrays[_entry(index)], kind, dtype, shape, node.get("implementation"))
        case {"list": list(items)}:
            return [_build(item, arrays) for item in items]
        case {"tuple": list(items)}:
            return tuple(_build(item, arrays) for item in items)
        case {"dict": dict(items)}:
            return {name: _build(item, arrays) for name, item in items.items()}
        case {"function": str(name)}:
            if name not in FUNCTIONS:
                raise Refusal(f"the function {name!r} is not one that stored models may hold")
            return FUNCTIONS[name]
        case {"class": str(name), "spec": dict(spec)}:
            cls = find_class(name)
            if not hasattr(cls, "from_spec"):
                raise Refusal(f"{name} cannot be made from a description")
            return cls.from_spec(spec)  # pyright: ignore[reportAttributeAccessIssue]  (checked one line above)
        case {"class": str(name), "fields": dict(fields)}:
            return _build_module(find_class(name), {key: _build(item, arrays) for key, item in fields.items()})
    raise Refusal(f"a part of it is not understood: {json.dumps(node)[:80]}")


def _build_array(array: np.ndarray, kind: str, dtype: str, shape: list, implementation: Any) -> Any:
    expected = jnp.dtype(dtype)
    if expected.kind not in "biufc" and array.dtype.kind == "u" and array.dtype.itemsize == expected.itemsize:
        array = array.view(expected)
    if array.dtype != expected or list(array.shape) != shape:
        raise Refusal(f"an array is {array.dtype}{list(array.shape)} where {dtype}{shape} was announced")
    if kind == "jax":
        return jax.device_put(array)  # `jnp.asarray` would compile a small program for every shape
    if kind == "key":
        return jr.wrap_key_data(jax.device_put(array), impl=implementation)
    return array if array.ndim else array[()]


def _build_module(cls: type, fields: dict[str, Any]) -> Any:
    """Set the fields without calling `__init__`, as jax does when it rebuilds a tree; then check them."""
    known = {field.name for field in dataclasses.fields(cls)}
    if cls.__name__ in ADDED:  # fields that older files lack
        fields = ADDED[cls.__name__] | fields
    if set(fields) != known:
        odd = ", ".join(sorted(set(fields) ^ known))
        raise Refusal(f"{cls.__name__} has other fields in this version of the library ({odd})")
    module = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    for parent in cls.__mro__:
        if "__check_init__" in vars(parent):
            parent.__check_init__(module)  # pyright: ignore[reportAttributeAccessIssue]  (checked one line above)
    return module
