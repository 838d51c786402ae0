"""Draw the rooms of `unle`, and the way of the data through them, for CONTRIBUTING: docs/images/rooms.svg.

    python scripts/rooms_map.py

The floors are read from tests/test_layers.py, which enforces them; a test compares the picture with what this draws.
"""

import argparse
import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

# What happens in each room on the way, and the record that it hands on.
WAY = [
    ("simulators", "run your program", "Simulations"),
    ("space", "standardise", "t and w"),
    ("train", "fit the models", "likelihood"),
    ("posterior", "sample at x_o", "Draws"),
    ("diagnose", "check", "Findings"),
    ("report", "write the page", None),
]
HELPERS = {
    "simulators": ("store", "rows, files"),
    "train": ("models", "bases, energies"),
    "posterior": ("samplers", "chains, SMC"),
    "report": ("plot", "figures"),
}
WIDTH, BOX, GAP, LEFT, ROW = 1190, 140, 62, 20, 34
STYLE = """text { font: 16px sans-serif; fill: #1d2b2a; } .name { font-weight: bold; } .small { font-size: 14px; }
.room { fill: #d7ece8; stroke: #00695c; } .helper { fill: #fff; stroke: #00695c; stroke-dasharray: 5 3; }
.frame { fill: none; stroke: #8a6d1d; } .arrow { stroke: #333; fill: none; marker-end: url(#tip); }
.floor { fill: #f3f3f3; }"""


def floors() -> dict[int, list[str]]:
    """Return the rooms on each floor, as the test of the layers has them; everything below the first counts as 0."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    table = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "LIBRARY")
    found: dict[int, list[str]] = {}
    for room, floor in ast.literal_eval(table).items():
        if not room.startswith("__"):
            found.setdefault(max(floor, 0), []).append(room)
    return found


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text, centred at x."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, name: str, what: str, kind: str, inset: int = 0) -> list[str]:
    """Return a room with its name and what happens there."""
    shape = f'<rect x="{x + inset:g}" y="{y:g}" width="{BOX - 2 * inset}" height="54" rx="8" class="{kind}"/>'
    return [shape, text(x + BOX / 2, y + 23, name, "name"), text(x + BOX / 2, y + 43, what, "small")]


def arrow(*points: tuple[float, float]) -> str:
    """Return an arrow through points."""
    return f'<polyline points="{" ".join(f"{x:g},{y:g}" for x, y in points)}" class="arrow"/>'


def the_way() -> list[str]:
    """Return the upper part: rooms in the order in which data pass them, with what is handed on."""
    place = {name: LEFT + i * (BOX + GAP) for i, (name, _, _) in enumerate(WAY)}
    y = 130
    parts = [text(WIDTH / 2, 28, "The way of the data", "name")]
    for name, what, record in WAY:
        parts += box(place[name], y, name, what, "room")
        if record is not None:
            end = place[name] + BOX
            parts += [arrow((end, y + 27), (end + GAP - 2, y + 27)), text(end + GAP / 2, y - 8, record, "small")]
    for room, (helper, what) in HELPERS.items():
        parts += box(place[room], y + 108, helper, what, "helper", inset=12)
        parts.append(arrow((place[room] + BOX / 2, y + 108), (place[room] + BOX / 2, y + 56)))
    parts += [
        text(place["simulators"] + BOX / 2, 62, "you: prior, simulator", "small"),
        arrow((place["simulators"] + BOX / 2, 70), (place["simulators"] + BOX / 2, y - 2)),
        text(place["posterior"] + BOX / 2, 62, "you: x_o", "small"),
        arrow((place["posterior"] + BOX / 2, 70), (place["posterior"] + BOX / 2, y - 2)),
    ]
    low = y + 196
    first, last = place["simulators"] + 5, place["posterior"] + BOX - 5
    parts += [
        arrow((last, y + 54), (last, low - 10), (first, low - 10), (first, y + 56)),
        text((first + last) / 2, low - 16, "SUNLE: the next round simulates where the posterior is", "small"),
        f'<rect x="{LEFT - 12}" y="84" width="{last - LEFT + 21}" height="{low - 66}" rx="12" class="frame"/>',
        text((first + last) / 2, low + 38, "methods: AUNLE.fit and SUNLE.run put these rooms together", "name"),
    ]
    return parts


def the_floors(top: float) -> list[str]:
    """Return the lower part: who may import from whom."""
    rows = floors()
    parts = [text(WIDTH / 2, top, "Floors: a room imports from lower floors only", "name")]
    for i, floor in enumerate(sorted(rows, reverse=True)):
        y = top + 16 + i * ROW
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - 2 * LEFT}" height="{ROW - 6}" rx="6" class="floor"/>')
        parts.append(text(LEFT + 24, y + 20, str(floor)))
        step = (WIDTH - 2 * LEFT - 80) / len(rows[floor])
        parts += [text(LEFT + 60 + (j + 0.5) * step, y + 20, name, "name") for j, name in enumerate(rows[floor])]
    return parts


def picture() -> str:
    """Return the whole picture."""
    top = 420
    height = top + 26 + ROW * len(floors())
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    tip += '<path d="M0 0 8 4 0 8z"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    title = "<title>The rooms of unle and the way of the data through them</title>"
    parts = [head, title, f"<style>{STYLE}</style><defs>{tip}</defs>", '<rect width="100%" height="100%" fill="#fff"/>']
    return "\n".join([*parts, *the_way(), *the_floors(top), "</svg>"]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"drawn: {PICTURE}")
