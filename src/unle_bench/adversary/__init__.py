"""An adversary's benchmark: small simulators with exact posteriors that attack the defaults of the methods.

`unle adversary` runs methods on all of them and says where a posterior is wrong, and where it is wrong although every
check is good.
"""

from unle_bench.adversary.simulator import OBSERVATIONS, Adversary, observation_of
from unle_bench.adversary.simulators import ADVERSARIES

__all__ = ["ADVERSARIES", "OBSERVATIONS", "Adversary", "observation_of"]
