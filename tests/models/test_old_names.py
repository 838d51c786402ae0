"""Files of older versions name classes by the files and names that these had then."""

import pytest

from unle import methods, models, space, train
from unle.store.storable_classes import find_class


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("unle.models.correction:Straight", models.NoCorrection),
        ("unle.models.correction:Flex", models.NeuralCorrection),
        ("unle.models.polynomial:Bend", models.PolynomialMean),
        ("unle.models.gaussian_process:Kernel", models.Kernel),
        ("unle.models.likelihood:Ensemble", models.Ensemble),
        ("unle.models.energy:MlpEnergy", models.MlpEnergy),
        ("unle.models.tilted:TiltedModel", models.EnergyModel),
        ("unle.models.focus:Region", models.Region),
        ("unle.models.validity:DoublyIntractableGivenValid", models.DoublyIntractableGivenValid),
        ("unle.models.log_normaliser:Normalised", models.Normalised),
        ("unle.models.ensembles:Ensemble", models.Ensemble),
        ("unle.models.mixture_noise:NoisyBase", models.NoisyBase),
        ("unle.models.repeated:Repeated", models.Repeated),
        ("unle.models.cell_likelihood:OverCells", models.OverCells),
        ("unle.space.cells:Cells", space.Cells),
        ("unle.train.carry:Carried", train.Carried),
        ("unle.train.carry:Frame", train.Frame),
        ("unle.models.likelihood:TiltedLikelihood", models.EnergyLikelihood),
        ("unle.methods.paper_warm_start:PaperCarried", methods.PaperCarried),
    ],
)
def test_a_class_is_found_by_the_name_it_had(old, now):
    assert find_class(old) is now
