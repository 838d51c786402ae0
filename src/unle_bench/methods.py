"""The contestants of the benchmark, one line each."""

from unle.methods import AUNLE, NLE, SMNLE, SNLE, SUNLE, ByExchange, Divi, Online
from unle.models import ConditionalLikelihood, Ensemble, SplineFlow, check_flows
from unle.posterior import Exchange, Posterior
from unle.train import PersistentChains, TiltedTraining, WarmSmc
from unle_bench.contestant import AbstractContestant, Amortised, Sequential, SequentialTogether
from unle_bench.peers import Peer
from unle_bench.yardsticks import Exact, FromPrior


def by_exchange(posterior: Posterior) -> Posterior:
    """Sample AUNLE's posterior as if Z depended on theta, to see whether it does (first member of an ensemble)."""
    likelihood = posterior.likelihood
    assert isinstance(likelihood, Ensemble), "for tasks without failures"
    first = likelihood.member(0)
    return Posterior(posterior.prior, ConditionalLikelihood(first.theta_space, first.x_space, first.model), Exchange())


def base_alone(task):
    """Return AUNLE whose energies never train: the ensemble of conditional Gaussians, the honest control."""
    return AUNLE(task.prior, training=TiltedTraining(iterations=1))


def followed_by(particles):
    """Return AUNLE whose training follows the model with other particles."""
    return lambda task: AUNLE(task.prior, training=TiltedTraining(particles))


def in_rounds_as_printed(normaliser):
    """Return SUNLE of the paper, with one of its ways to deal with Z(theta)."""
    return SequentialTogether(
        lambda task, simulator: SUNLE.paper(task.prior, simulator, normaliser=normaliser),
    )


METHODS: dict[str, AbstractContestant] = {
    "aunle": Amortised(lambda task: AUNLE(task.prior)),
    "sunle": Sequential(lambda task, simulator: SUNLE(task.prior, simulator)),
    "nle": Amortised(lambda task: NLE(task.prior), needs=check_flows),
    "nle-spline": Amortised(lambda task: NLE(task.prior, flow=SplineFlow()), needs=check_flows),
    "snle": Sequential(lambda task, simulator: SNLE(task.prior, simulator), needs=check_flows),
    "snle-spline": Sequential(
        lambda task, simulator: SNLE(task.prior, simulator, flow=SplineFlow()), needs=check_flows
    ),
    "smnle-sm": Amortised(lambda task: SMNLE(task.prior)),
    "smnle-ssm": Amortised(lambda task: SMNLE(task.prior, sliced=True)),
    "gaussian": Amortised(base_alone),
    "aunle-mala-30": Amortised(followed_by(PersistentChains(moves=30))),
    "aunle-mala-200": Amortised(followed_by(PersistentChains(moves=200))),
    "aunle-smc-5": Amortised(followed_by(WarmSmc(temperatures=5))),
    "aunle-smc-20": Amortised(followed_by(WarmSmc(temperatures=20))),
    "aunle-single": Amortised(lambda task: AUNLE(task.prior, members=1)),
    "aunle-exchange": Amortised(lambda task: AUNLE(task.prior, members=1), change=by_exchange),
    "sunle-exchange": Sequential(lambda task, simulator: SUNLE(task.prior, simulator, normaliser=ByExchange())),
    "aunle-paper": Amortised(lambda task: AUNLE.paper(task.prior)),
    "aunle-paper-smc": Amortised(lambda task: AUNLE.paper(task.prior, particles=WarmSmc(temperatures=20))),
    "sunle-paper": in_rounds_as_printed(ByExchange()),
    "sunle-paper-divi": in_rounds_as_printed(Divi()),
    "sunle-paper-online": in_rounds_as_printed(Online()),
    "sbi-nle": Peer("nle"),
    "sbi-snle": Peer("nle", rounds=10),
    "sbi-npe": Peer("npe"),
    "prior": FromPrior(),
    "exact": Exact(),
}
