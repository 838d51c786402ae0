import pytest

from unle.errors import FitError, InputError, Outcome, StoreError, UnleError


@pytest.mark.parametrize(("error", "kind"), [(InputError, ValueError), (FitError, RuntimeError), (StoreError, OSError)])
def test_an_error_is_caught_by_its_kind_and_by_the_library_s_own(error, kind):
    for caught in (kind, UnleError):
        with pytest.raises(caught, match="^one sentence$"):
            raise error("one sentence")


def test_an_outcome_says_what_happened():
    assert str(Outcome.CONVERGED) == "Converged."
    assert [outcome.name for outcome in Outcome if not outcome.usable] == ["DIVERGED"]
