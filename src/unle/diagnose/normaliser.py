"""The check of Z(theta) in the form of all other checks; the mathematics is in `z_uniformity`."""

from unle.diagnose.record import Check
from unle.diagnose.z_uniformity import ZUniformity

TITLE = "Constant normaliser"
QUESTION = "Is the model's normaliser the same for every theta, as its posterior assumes?"


def normaliser(found: ZUniformity) -> Check:
    """Return the finding of `z_uniformity` as a `Check`."""
    verdict = {"good": "good", "doubtful": "doubtful"}.get(found.verdict, "bad")
    numbers = {
        "sd_of_log_Z": found.sd,
        "expected_c2st": found.expected_c2st,
        "weight_ess": found.weight_ess,
        "ess_behind_Z": found.ess * found.n_data,
    }
    arrays = {"log_z": found.log_z, "theta": found.theta}
    return Check("normaliser", TITLE, QUESTION, verdict, numbers, found.advice, arrays, found.names)  # pyright: ignore[reportArgumentType]
