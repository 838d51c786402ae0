"""When a training as the paper prints it goes back, and which of its energies is returned."""

import jax.numpy as jnp
import numpy as np
import pytest

from unle.errors import InputError, Outcome
from unle.train import PairedChains, PaperTraining
from unle.train.energy_training import EnergyState
from unle.train.paper_fit import LARGEST_GAP, MOST_RECOVERIES, _Progress, _State

HEALTHY = {"gap": 0.1, "acceptance": 0.5}


def state(name):
    return _State(EnergyState(name, None, None, jnp.ones(()), None), None)


def begun(largest_gap=LARGEST_GAP):
    start = state("start")
    return _Progress(start, best=start, largest_gap=largest_gap)


def trained(*changes):
    """Return where training stands after healthy chunks that changed the held-out likelihood by so much."""
    progress = begun()
    for number, change in enumerate(changes):
        progress = progress.after(state(number), change, HEALTHY)
    return progress


def test_a_small_loss_is_no_over_fitting_and_a_large_one_is():
    assert not trained(20.0, -9.0).has_lost(10.0)
    lost = trained(20.0, -9.0, -2.0)
    assert lost.has_lost(10.0)
    assert not lost.has_lost(None)  # the paper's own rule
    assert (lost.best.fit.before, lost.best_gain, lost.state.fit.before) == (0, 20.0, 2)
    assert lost.outcome(is_over_fitted=True) is Outcome.CONVERGED


def test_what_was_lost_for_a_while_does_not_count():
    assert not trained(20.0, -15.0, 12.0).has_lost(10.0)


@pytest.mark.parametrize("bad", [{"gap": np.nan}, {"gap": 51.0}, {"gap": -51.0}, {"acceptance": 0.01}])
def test_divergence_goes_back_with_half_the_learning_rate(bad):
    progress = trained(5.0).after(state("bad"), 1.0, HEALTHY | bad)
    assert not progress.is_healthy
    assert progress.state.fit.before == 0
    assert float(progress.state.fit.rate) == 0.5
    assert progress.now == 5.0
    assert progress.after(state("good"), 1.0, HEALTHY).outcome(is_over_fitted=False) is Outcome.RECOVERED


def test_energies_that_were_far_apart_at_the_beginning_may_stay_so_for_a_while():
    far = HEALTHY | {"gap": 600.0}
    assert not begun().after(state("new"), 1.0, far).is_healthy
    assert begun(largest_gap=2 * 650.0).after(state("new"), 1.0, far).is_healthy


def test_training_that_was_never_healthy_has_diverged():
    progress = begun()
    for _ in range(MOST_RECOVERIES):
        progress = progress.after(state("bad"), np.nan, HEALTHY)
    assert progress.outcome(is_over_fitted=False) is Outcome.DIVERGED
    assert progress.state.fit.before == "start"


def test_a_negative_loss_is_refused():
    with pytest.raises(InputError, match="largest_loss"):
        PaperTraining(PairedChains(), largest_loss=-1.0)
