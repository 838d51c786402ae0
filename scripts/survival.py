"""Measure what simulations survive, and what that costs.

    python scripts/survival.py kills         kill -9 at 20 random moments, go on each time
    python scripts/survival.py mischief      a simulator that raises, hangs, aborts and returns NaN, on 4 processes
    python scripts/survival.py dask          the same on a Dask cluster; a worker is killed and another one joins
    python scripts/survival.py identical     threads, processes and Dask give the same bits
    python scripts/survival.py overhead      of executor and store at 1 ms per simulation
    python scripts/survival.py store         rows per second written and read
    python scripts/survival.py million       1,000,000 trivial simulations through Dask
    python scripts/survival.py growth        training on 5,000,000 simulations in 100 MB
    python scripts/survival.py stages        kill -9 of `unle run` in every stage, for both methods
    python scripts/survival.py corruption    200 damaged run directories

Each prints one line per number. Without an argument all of them run. Timings want a machine that does nothing else.
"""

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import unle
from unle.simulators import simulate_into
from unle.store import SimulationStore

HERE = Path(__file__).resolve()
SOURCE = HERE.parents[1] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "UNLE_PROGRESS": "0"}


class Box:
    """A uniform prior on [-1, 1]^2, without jax."""

    def sample(self, n, *, seed=0):
        """Draw n points."""
        return np.random.default_rng(seed).uniform(-1, 1, size=(n, 2))


def trivial(theta, rng):
    """Add noise."""
    return theta + rng.normal(size=2)


def sleepy(theta, rng):
    """Take a millisecond without using the processor."""
    time.sleep(0.001)
    return theta


def busy(theta, rng):
    """Take a millisecond of processor time."""
    end = time.process_time() + 0.001
    while time.process_time() < end:
        pass
    return theta


def mischievous(theta, rng):
    """Raise on 10 %, hang on 2 %, return NaN on 10 %, abort on 1 % of the prior."""
    u = (theta[0] + 1) / 2
    if u < 0.10:
        raise ValueError("raised")
    if u < 0.12:
        time.sleep(10_000)
    if u < 0.22:
        return [np.nan, 0.0]
    if u < 0.23:
        os.abort()
    return trivial(theta, rng)


def fate(u):
    """Return the first word of the reason that `mischievous` must get at this share of the prior."""
    limits = ((0.10, "ValueError"), (0.12, "timed out"), (0.22, "not finite"), (0.23, "crashed"))
    return next((word for limit, word in limits if u < limit), "valid")


def say(name, text):
    """Print one result."""
    print(f"{name:12s} {text}", flush=True)


# --- kills

KILLED = """
import os, sys, time
sys.path.insert(0, {scripts!r})
from survival import Box, trivial
import unle
from unle.store import SimulationStore

def counting(theta, rng):
    with open({calls!r}, "ab") as file:
        file.write(theta.tobytes())
    time.sleep(0.005)
    return trivial(theta, rng)

with SimulationStore({store!r}) as store:
    unle.simulate(counting, Box(), {n}, seed=1, store=store, workers=4)
"""


def kills(n=2000, times=20):
    """Kill -9 at random moments of a run, and begin it again each time."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        calls, store = f"{folder}/calls", f"{folder}/s.sqlite"
        code = KILLED.format(scripts=str(HERE.parent), calls=calls, store=store, n=n)
        killed, worst = 0, 0
        while killed < times:
            before = _stored(store)
            called = _called(calls)
            process = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
            time.sleep(rng.uniform(0.5, 2.0))
            if process.poll() is not None:  # finished before its time: the last kills find nothing to harm
                killed += 1
                continue
            process.kill()
            process.wait()
            killed += 1
            time.sleep(0.3)
            worst = max(worst, _called(calls) - called - (_stored(store) - before))
        subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)
        with SimulationStore(store) as kept:
            rows = kept.read(0)
        whole = unle.simulate(trivial, Box(), n, seed=1)
        done = np.frombuffer(Path(calls).read_bytes()).reshape(-1, 2)
        again = len(done) - n
        exact = bool(np.array_equal(rows.id, np.arange(n)) and np.array_equal(rows.x, whole.x))
        say("kills", f"{killed} kills: every id exactly once and bits as uninterrupted: {exact}")
        say("kills", f"{again} of {n} simulated again in all; at most {worst} lost in one kill (4 workers)")
        return exact


def _called(path):
    return os.path.getsize(path) // 16 if os.path.exists(path) else 0


def _stored(path):
    if not os.path.exists(path):
        return 0
    with SimulationStore(path) as store:
        return store.count()


# --- mischief


def mischief(n=2000):
    """Run the mischievous simulator on four processes."""
    start = time.perf_counter()
    sims = unle.simulate(mischievous, Box(), n, seed=1, workers=4, timeout=1.0)
    return _judge("mischief", sims, time.perf_counter() - start)


def _judge(name, sims, seconds):
    wanted = [fate((t[0] + 1) / 2) for t in sims.theta]
    got = [reason.partition(":")[0] or "valid" for reason in sims.reasons]
    whole = unle.simulate(trivial, Box(), len(sims), seed=1)
    right = got == wanted and np.array_equal(sims.valid_x, whole.x[sims.valid])
    say(name, f"{seconds:.1f} s; {dict(Counter(got))}; every reason right and valid ones as ever: {right}")
    return right


def dask(n=2000):
    """Run the mischievous simulator on a cluster that loses a worker and gains another."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(4, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        start = time.perf_counter()
        with ThreadPoolExecutor(1) as background:
            future = background.submit(
                unle.simulate, mischievous, Box(), n, seed=1, timeout=1.0, executor=client.get_executor(pure=False)
            )
            time.sleep(6)
            victim = next(iter(client.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
            cluster.scale(5)
            sims = future.result()
        return _judge("dask", sims, time.perf_counter() - start)


def identical(n=3000):
    """Compare the bits of all engines, with several chunk sizes."""
    from distributed import Client, LocalCluster

    from unle.simulators import dispatch

    whole = unle.simulate(trivial, Box(), n, seed=1)
    results = {}
    for seconds in (0.002, 0.05, 1.0):
        dispatch.PIECE_SECONDS = seconds
        results[f"processes, {seconds} s"] = unle.simulate(trivial, Box(), n, seed=1, workers=3)
        with ThreadPoolExecutor(4) as pool:
            results[f"threads, {seconds} s"] = unle.simulate(trivial, Box(), n, seed=1, executor=pool, isolate=False)
        with LocalCluster(2, threads_per_worker=2, dashboard_address=None) as cluster, Client(cluster) as client:
            executor = client.get_executor(pure=False)
            results[f"dask, {seconds} s"] = unle.simulate(trivial, Box(), n, seed=1, executor=executor)
    dispatch.PIECE_SECONDS = 1.0
    same = {name: bool(np.array_equal(sims.x, whole.x)) for name, sims in results.items()}
    say("identical", f"{sum(same.values())} of {len(same)} engines and chunk sizes give the same bits as serial")
    return all(same.values())


# --- cost


def overhead(n=60_000):
    """Compare a run at 1 ms per simulation on 4 processes with the time spent inside the simulator."""
    for simulator in (sleepy, busy):
        with tempfile.TemporaryDirectory() as folder, SimulationStore(f"{folder}/s.sqlite") as store:
            start = time.perf_counter()
            simulate_into(store, simulator, Box().sample(n), workers=4)
            seconds = time.perf_counter() - start
            inside = store.read(0).seconds.sum() / 4
        say(
            "overhead",
            f"{simulator.__name__}: {seconds:.2f} s for {n} simulations of {4e3 * inside / n:.3f} ms on 4 processes; "
            f"{inside:.2f} s of it inside the simulator: overhead {100 * (seconds / inside - 1):.1f} %",
        )


def store(n=1_000_000):
    """Write and read many rows."""
    rng = np.random.default_rng(0)
    theta, x = rng.normal(size=(n, 5)), rng.normal(size=(n, 10))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s.sqlite"
        with SimulationStore(path) as kept:
            start = time.perf_counter()
            for a in range(0, n, 1000):
                rows = slice(a, a + 1000)
                kept.append(ids=np.arange(a, a + 1000), theta=theta[rows], x=x[rows], reasons=[""] * 1000, worker="w")
            say("store", f"{n / (time.perf_counter() - start):,.0f} rows/s written, 1,000 at a time, each synced")
        say("store", f"{os.path.getsize(path) / n:.0f} bytes per row of 5 + 10 numbers")
        start = time.perf_counter()
        with SimulationStore(path) as kept:
            opened = time.perf_counter() - start
            rows = kept.read(0)
        seconds = time.perf_counter() - start
        say("store", f"{seconds:.2f} s to open ({opened:.2f} s, integrity checked) and load {n:,} rows")
        assert np.array_equal(rows.x, x)
        del rows
        with SimulationStore(path, read_only=True) as kept:
            start = time.perf_counter()
            count = sum(len(batch[0]) for batch in kept.batches(4096, shuffle=0))
        say("store", f"{count / (time.perf_counter() - start):,.0f} rows/s streamed in shuffled batches of 4,096")


def million(n=1_000_000):
    """Simulate a million times through Dask, and watch the memory of the driver."""
    import dask
    import psutil
    from distributed import Client, LocalCluster

    from unle.simulators.workers import SHORT_DASK_LOG

    with (
        dask.config.set(SHORT_DASK_LOG),
        LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
        SimulationStore(f"{folder}/s.sqlite") as kept,
        ThreadPoolExecutor(1) as background,
    ):
        theta = Box().sample(n)
        process = psutil.Process()
        memory = []
        start = time.perf_counter()
        done = background.submit(_watch, process, memory, start)
        simulate_into(kept, trivial, theta, seed=1, executor=client.get_executor(pure=False))
        seconds = time.perf_counter() - start
        memory.append((None, None))
        done.result()
        points = [m for t, m in memory if t is not None]
        quarter = points[len(points) // 4]
        say(
            "million",
            f"{n:,} simulations in {seconds:.0f} s: {n / seconds:,.0f} per second end to end, {kept.count():,} stored",
        )
        say(
            "million",
            f"driver memory after a quarter {quarter:.0f} MB, at the end {points[-1]:.0f}, peak {max(points):.0f} MB",
        )
        return kept.count() == n


def _watch(process, memory, start):
    while not (memory and memory[-1][0] is None):
        memory.append((time.perf_counter() - start, process.memory_info().rss / 1e6))
        time.sleep(0.5)


# --- more simulations than memory

GROWN = """
import resource, sys, warnings
import unle
from unle.store import SimulationStore

warnings.simplefilter("ignore")
prior = unle.Prior.normal([0.0] * 5, [1.0] * 5)
base, training = unle.train.GaussianTraining(iterations=300), unle.train.EnergyTraining(iterations=150)
method = unle.AUNLE(prior, base=base, training=training)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with SimulationStore(sys.argv[1], read_only=True) as store:
    if sys.argv[2] == "all":
        unle.Simulations.from_store(store)
    else:
        method.fit(store, memory=sys.argv[2], on_metrics=lambda **record: None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3)
"""


def growth(n=5_000_000, memory=100):
    """Train on a store of which only a part may be in memory (in MB), and look at the peak of the process."""
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(5, 5))
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"small": 20_000, "large": n}
        for name, rows in sizes.items():
            with SimulationStore(f"{folder}/{name}.sqlite") as kept:
                for a in range(0, rows, 20_000):
                    theta = rng.normal(size=(20_000, 5))
                    x = theta @ slopes + rng.normal(size=(20_000, 5))
                    kept.append(ids=np.arange(a, a + 20_000), theta=theta, x=x, reasons=[""] * 20_000)
        peaks = {}
        for name, how in (("small", f"{memory}MB"), ("large", f"{memory}MB"), ("large", "all")):
            start = time.perf_counter()
            command = [sys.executable, "-c", GROWN, f"{folder}/{name}.sqlite", how]
            done = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
            peaks[name, how] = float(done.stdout)
            what = "only loaded, all at once" if how == "all" else f"trained on within {how}"
            say(
                "growth",
                f"{sizes[name]:,} simulations of 10 numbers, {what}: {peaks[name, how]:.0f} MB more than before, "
                f"{time.perf_counter() - start:.0f} s",
            )
        more = peaks["large", f"{memory}MB"] - peaks["small", f"{memory}MB"]
        say("growth", f"{n:,} instead of 20,000 simulations cost {more:.0f} MB of memory")
        return more < memory < peaks["large", "all"] / 2  # loading would have been noticed


# --- whole runs

MODEL = """
import time
import unle
prior = unle.Prior.uniform(low=[-1.0, -1.0], high=[1.0, 1.0])
def simulator(theta, rng):
    time.sleep(0.002)
    return theta + 0.1 * rng.normal(size=2)
x_o = [0.2, -0.3]
"""
SMALL = ["--members", "1", "--iterations", "50", "--draws", "400", "--no-report"]
SETTINGS = ["--budget", "200", *SMALL]
METHODS = {
    "aunle": SETTINGS,
    "sunle": ["--method", "sunle", "--rounds", "2", "--budget", "200", *SMALL],
    "streamed": ["--budget", "1500", "--memory", "700kB", "--workers", "2", *SMALL, "--iterations", "150"],
}
# When a stage has begun: so many simulations are stored, this stage before it is sealed, or this file is there.
STAGES = {
    "aunle": {"simulating": 1, "training": 200, "sampling": "fit"},
    "streamed": {"training": "metrics.jsonl"},
    "sunle": {"fitting the first round": 100, "training": 200, "sampling": "fit"},
}


def _unle(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "unle.cli", *map(str, arguments)], env=ENVIRONMENT, **options)


def stages(methods=("aunle", "sunle", "streamed")):
    """Kill `unle run` in the middle of every stage; `unle resume` each time; also one that trains from a stream."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.py").write_text(MODEL)
        # The runs compile the same programs: keeping them saves minutes, and changes no bit.
        ENVIRONMENT["JAX_COMPILATION_CACHE_DIR"] = str(folder / "compiled")
        return all([_stages_of(method, folder) for method in methods])


def _stages_of(method, folder):
    run = ["run", folder / "model.py", *METHODS[method], "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    whole = folder / f"{method} whole"
    assert _unle(*run, whole, **quiet).wait() == 0
    wanted, good = np.asarray(unle.Draws.load(whole / "draws.nc")), True
    for stage, sign in STAGES[method].items():
        out = folder / f"{method} {stage}"
        process = _unle(*run, out, **quiet)
        while process.poll() is None and not _reached(out, sign):
            time.sleep(0.02)
        time.sleep(0.3)
        process.kill()
        process.wait()
        there = ", ".join(sorted(path.name for path in out.iterdir()))
        if (out / "draws.nc").exists():
            say("stages", f"{method}: killed too late to be {stage}")
            good = False
            continue
        assert _unle("resume", out, "--no-report", **quiet).wait() == 0
        same = np.array_equal(np.asarray(unle.Draws.load(out / "draws.nc")), wanted)
        good &= same
        say("stages", f"{method}, killed while {stage} (there: {there}), resumed: same draws to the bit: {same}")
    return good


def _reached(out, sign):
    if isinstance(sign, str) and (out / sign).exists():
        return True
    if isinstance(sign, str):
        return (out / "seals.json").exists() and f'"{sign}"' in (out / "seals.json").read_text()
    if not (out / "simulations.sqlite").exists():
        return False
    try:
        with sqlite3.connect(f"file:{out / 'simulations.sqlite'}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT count(*) FROM simulations").fetchone()[0] >= sign
    except sqlite3.Error:
        return False


def corruption(times=200):
    """Damage copies of a finished run, and ask for them."""
    from typer.testing import CliRunner

    from unle.cli import app

    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["UNLE_STATE"] = str(folder / "state")
        ENVIRONMENT["UNLE_STATE"] = os.environ["UNLE_STATE"]
        out = folder / "run"
        (folder / "model.py").write_text(MODEL)
        assert _unle("run", folder / "model.py", *SETTINGS, "--out", out, stdout=subprocess.DEVNULL).wait() == 0
        outcomes, slowest = Counter(), 0.0
        for i in range(times):
            copy = folder / f"copy{i}"
            shutil.copytree(out, copy)
            file, harm = _damage(copy, rng)
            command = (
                ["export", copy, copy / "all.npz"]
                if file == "simulations.sqlite"
                else ["resume", copy, folder / "model.py"]
            )
            start = time.perf_counter()
            result = CliRunner().invoke(app, list(map(str, command)))
            slowest = max(slowest, time.perf_counter() - start)
            lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
            if result.exit_code == 1 and len(lines) == 1 and isinstance(result.exception, SystemExit):
                outcomes["one clear error"] += 1
            else:
                outcomes["WRONG"] += 1
                say(
                    "corruption",
                    f"{file} {harm}: status {result.exit_code}, {result.exception!r} {result.stderr[-300:]}",
                )
            shutil.rmtree(copy)
        say("corruption", f"{times} damaged directories: {dict(outcomes)}; slowest answer {slowest:.2f} s")
        return not outcomes["WRONG"]


def _damage(copy, rng):
    """Truncate, flip a bit, change a version, or change a shape."""
    names = [
        "run.json",
        "seals.json",
        "rounds/00/likelihood.json",
        "rounds/00/likelihood.npz",
        "draws.nc",
        "metrics.jsonl",
        "simulations.sqlite",
    ]
    file = rng.choice(names)
    path = copy / file
    content = bytearray(path.read_bytes())
    harm = rng.choice(["truncated", "flipped", "flipped", "version", "shape"])
    if harm == "flipped":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
    elif harm == "truncated":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif file == "simulations.sqlite":
        with sqlite3.connect(path) as connection:
            if harm == "version":
                connection.execute(f"PRAGMA user_version = {rng.randrange(3, 100)}")
            else:
                change = rng.choice(["data = zeroblob(8)", "dim = 1", "width = 3"])
                connection.execute(f"UPDATE simulations SET {change} WHERE id = {rng.randrange(200)}")
        connection.close()
    elif file.endswith(".json"):
        path.write_bytes(bytes(content).replace(b'"format": 1', b'"format": 7') if harm == "version" else b"[1, 2]")
        if path.read_bytes() == bytes(content):
            path.write_bytes(b"{}")
    else:
        path.write_bytes(bytes(content[:-8]) + b"\0" * 16)
    return file, harm


if __name__ == "__main__":
    experiments = [kills, mischief, dask, identical, overhead, store, million, growth, stages, corruption]
    names = [experiment.__name__ for experiment in experiments]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="all of them by default")
    chosen = parser.parse_args().experiments or names
    if unknown := set(chosen) - set(names):
        parser.error(f"expected some of {', '.join(names)}; got {', '.join(sorted(unknown))}")
    os.environ["UNLE_PROGRESS"] = "0"
    results = [experiment() for experiment in experiments if experiment.__name__ in chosen]
    sys.exit(any(result is False for result in results))
