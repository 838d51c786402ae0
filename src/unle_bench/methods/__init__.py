"""Methods as the benchmark sees them: a task and a budget of simulations in, posterior draws out.

Reading order: `method_adapter` (what a method must do, and wrappers for those of `unle`), `registry` (all methods and
tasks by name, and files of your own), `peers` and `sbi_peer` (methods of the library sbi, in another environment).
"""

from unle_bench.methods.method_adapter import (
    AbstractMethodAdapter,
    Amortised,
    Outcome,
    Sequential,
    prior_simulations,
    reason_of,
)
from unle_bench.methods.registry import METHODS, Registry

__all__ = [
    "METHODS",
    "AbstractMethodAdapter",
    "Amortised",
    "Outcome",
    "Registry",
    "Sequential",
    "prior_simulations",
    "reason_of",
]
