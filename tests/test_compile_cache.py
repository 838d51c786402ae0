"""The next process finds what this one compiled, unless it may not."""

import os
import subprocess
import sys

import pytest

from unle.compile_cache import cache_folder, remove_oldest

PROGRAM = """
import jax, jax.numpy as jnp, unle.compiling
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
from unle.compiling import large_program

@large_program
def slow(x):
    for k in range(60):
        x = jnp.sort(jnp.sin(x * k))
    return x

slow(jnp.arange(7.0)).block_until_ready()
print(sum("cache_hits" in event for event in events))
"""


def hits(**environment) -> int:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMP", "UNLE_CACHE"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=known | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_a_second_process_need_not_compile(tmp_path):
    assert hits(UNLE_CACHE=str(tmp_path)) == 0
    assert any(tmp_path.rglob("*-cache"))
    assert hits(UNLE_CACHE=str(tmp_path)) > 0


def test_nothing_is_kept_where_it_is_switched_off(tmp_path):
    assert hits(UNLE_CACHE="0", XDG_CACHE_HOME=str(tmp_path)) == 0
    assert not any(tmp_path.iterdir())


def test_the_folder_is_named_by_the_user_or_by_convention(monkeypatch, tmp_path):
    monkeypatch.setenv("UNLE_CACHE", "0")
    assert cache_folder() is None
    monkeypatch.delenv("UNLE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "unle"


@pytest.mark.parametrize(("most", "left"), [(100, "abc"), (25, "bc"), (5, "")])
def test_the_oldest_programs_are_removed(tmp_path, most, left):
    for age, name in enumerate("cba"):
        (tmp_path / name).write_bytes(b"0123456789")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    remove_oldest(tmp_path, most)
    assert "".join(sorted(file.name for file in tmp_path.iterdir())) == left
