"""Compile the sampler while a model is still training: the first draws come without a wait."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from unle.compiling import meanwhile
from unle.models import AbstractLikelihood
from unle.posterior.posterior import Posterior, compile_sampler
from unle.posterior.posterior_samplers import AbstractPosteriorSampler
from unle.space import Prior


def sampler_compiled(
    prior: Prior, likelihood: Callable[[], AbstractLikelihood], sampler: AbstractPosteriorSampler
) -> AbstractContextManager[None]:
    """Compile `sample` of a posterior, for one observation and the default number of draws, during the block.

    Args:
        prior: of the posterior.
        likelihood: makes one with the structure and the shapes of the posterior's, meanwhile too.
        sampler: of the posterior.
    """
    return meanwhile(lambda: compile_sampler(Posterior(prior, likelihood(), sampler)))
