"""What the rows say, by simulator and in all."""

from collections.abc import Sequence

from unle_bench.adversary.scoring import MEASURES
from unle_bench.adversary.simulators import ADVERSARIES
from unle_bench.adversary.trial import Row
from unle_bench.results_store import OK

CLOSE = 0.6  # C2ST up to which an alarm would be a false one
HEADS = ("simulator", "method", "runs", "failed", "wrong", "wrong but good", *MEASURES, "kept")


def by_simulator(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for every simulator and method: counts, and the worst of every measure."""
    order = {name: number for number, name in enumerate(ADVERSARIES)}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (order.get(row["simulator"], len(order)), row["method"], row["seed"])):
        groups.setdefault((row["simulator"], row["method"]), []).append(row)
    return [[*names, *_counts(group), *_worst(group), _kept(group)] for names, group in groups.items()]


def totals(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for every method.

    Example:
        >>> totals([{"method": "aunle", "outcome": "ok", "wrong": True, "false_assurance": True, "verdict": "good"}])
        ['aunle: 1 run, 0 failed, 1 wrong, 1 of these with false assurance; 0 close, 0 of these not called good.']
    """
    sentences = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        failed, wrong, assured = _counts(own)[1:]
        close = [row for row in own if row["outcome"] == OK and not row["wrong"] and row["c2st"] <= CLOSE]
        alarmed = sum(row.get("verdict") != "good" for row in close)
        sentences.append(
            f"{method}: {len(own)} run{'' if len(own) == 1 else 's'}, {failed} failed, {wrong} wrong, {assured} of "
            f"these with false assurance; {len(close)} close, {alarmed} of these not called good."
        )
    return sentences


def line_of(row: Row) -> str:
    """Return one run in a line, for whoever watches."""
    name = f"{row['simulator']}/{row['method']}/{row['seed']} ({row['observation']})"
    if row["outcome"] != OK:
        return f"{name}: failed: {row['outcome']}"
    if row.get("not_finite"):
        return f"{name}: wrong: {row['not_finite']} draws are not finite, verdict {row['verdict']}"
    judged = "false assurance" if row["false_assurance"] else "wrong" if row["wrong"] else "not wrong"
    numbers = ", ".join(f"{measure} {row[measure]:.3g}" for measure in MEASURES)
    return f"{name}: {judged}; {numbers}; verdict {row['verdict']}; {row['seconds']:.0f} s"


def _counts(rows: Sequence[Row]) -> list[str]:
    counts = (
        len(rows),
        sum(row["outcome"] != OK for row in rows),
        sum(bool(row["wrong"]) for row in rows),
        sum(bool(row["false_assurance"]) for row in rows),
    )
    return [str(count) for count in counts]


def _worst(rows: Sequence[Row]) -> list[str]:
    found = [[row[measure] for row in rows if row.get(measure) is not None] for measure in MEASURES]
    return [f"{max(values):.3g}" if values else "" for values in found]


def _kept(rows: Sequence[Row]) -> str:
    kept = [" + ".join(filter(None, (row.get("base"), row.get("energy")))) for row in rows if row["outcome"] == OK]
    return ", ".join(dict.fromkeys(filter(None, kept)))
