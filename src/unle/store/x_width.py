"""Which length of x is the right one, when a simulator returned several.

Simulations arrive in the order in which the workers finish, and until all are there the first one decides. At the end
the majority decides, so that the result is the same for any number of workers.
"""

import numpy as np

from unle.store.database import Database
from unle.store.row_format import by_width, pack, unpack

# Rows whose only fault is their length, and the valid ones.
_CANDIDATES = "round = ? AND width >= 0 AND (valid OR reason LIKE 'wrong length:%')"


def wrong_length(length: int, width: int) -> str:
    """Return the reason of a data vector that has another length than the others."""
    return f"wrong length: {length} values instead of {width}"


def settle_x_width(database: Database, round: int) -> None:
    """Make the data vectors of the most frequent length valid, and the others invalid."""
    counts = database.query(
        f"SELECT width, max(valid) FROM simulations WHERE {_CANDIDATES} GROUP BY 1 ORDER BY count(*) DESC, 1", (round,)
    )
    if [valid for _, valid in counts] in ([], [1] + [0] * (len(counts) - 1)):
        return
    most = counts[0][0]
    rows = database.query(f"SELECT id, reason, dim, width, data FROM simulations WHERE {_CANDIDATES}", (round,))
    ids, reasons, dims, widths, content = zip(*rows, strict=True)
    changes, dim = [], dims[0]
    with database.decoding():
        for width, members in by_width(widths):
            numbers = np.array([ids[i] for i in members])
            old = unpack(round, numbers, [content[i] for i in members], dim, width, [reasons[i] for i in members])
            reason = "" if width == most else wrong_length(width, most)
            _, packed = pack(round, numbers, old[:, :dim], old[:, dim:-1], old[:, -1], [reason] * len(members))
            changes += [(not reason, reason, row, ids[i], round) for row, i in zip(packed, members, strict=True)]
    database.change("UPDATE simulations SET valid = ?, reason = ?, data = ? WHERE id = ? AND round = ?", changes)
