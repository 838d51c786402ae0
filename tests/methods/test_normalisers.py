"""Which members of an ensemble get a normaliser of their own."""

from itertools import compress

import numpy as np
import pytest

from unle.methods import normalisers
from unle.methods.normalisers import Divi, Fitted

THETA = np.zeros((4, 2))


class Named(Fitted):
    """Members that are their numbers."""

    @property
    def members(self):
        return list(self.order)


@pytest.mark.parametrize(
    ("gains", "kept"),
    [
        ([1.5, 1.4, 1.3], [2, 0, 1]),
        ([1.5, 1.4, 0.5], [2, 0]),  # the last one learned a third of what there is to learn
        ([0.01, 0.01, 0.0], [2, 0]),
    ],
)
def test_members_that_learned_nothing_are_left_out(monkeypatch, gains, kept):
    seen = []
    monkeypatch.setattr(normalisers, "_divided", lambda key, members, *rest: seen.extend(members))
    fitted = Named.__new__(Named, None, [2, 0, 1], gains, THETA, None, None)
    assert list(compress(fitted.order, fitted.trained)) == kept
    Divi()(None, fitted)
    assert seen == kept
