"""Which length of x is the right one, when a simulator returned several.

Simulations arrive in whatever order the workers finish, and until all are there the first one decides. At the end the
majority does, so that the result is the same for any number of workers.
"""

import numpy as np

from unle.store.checks import row_checks
from unle.store.connection import Connection
from unle.store.packing import pack
from unle.store.ragged import Ragged

# Rows whose only fault is their length, next to the valid ones.
_CANDIDATES = "round = ? AND width >= 0 AND (valid OR reason LIKE 'wrong length:%')"


def wrong_length(length: int, width: int) -> str:
    """Return the reason of a data vector that has another length than the others."""
    return f"wrong length: {length} values instead of {width}"


def settle(connection: Connection, round: int) -> None:
    """Make the data vectors of the most frequent length valid, and the others invalid."""
    counts = connection.query(
        f"SELECT width, max(valid) FROM simulations WHERE {_CANDIDATES} GROUP BY 1 ORDER BY count(*) DESC, 1",
        (round,),
    )
    if [valid for _, valid in counts] in ([], [1], [1] + [0] * (len(counts) - 1)):
        return
    width = counts[0][0]
    rows = connection.query(f"SELECT id, theta, x, seconds FROM simulations WHERE {_CANDIDATES}", (round,))
    ids, thetas, xs, seconds = zip(*rows, strict=True)
    theta, x = Ragged.from_bytes(thetas), Ragged.from_bytes(xs)
    reasons = ["" if length == width else wrong_length(length, width) for length in x.lengths.tolist()]
    valid = np.array([not reason for reason in reasons])
    checks = row_checks(round, np.array(ids), theta, x, valid, np.array(seconds), reasons)
    connection.change(
        f"UPDATE simulations SET valid = ?, reason = ?, data = ? WHERE round = {int(round)} AND id = ?",
        zip(valid.astype(int).tolist(), reasons, pack(theta, x, np.array(seconds), checks), ids, strict=True),
    )
