"""How a simulator reaches another process: by name if it can be imported there, by value otherwise.

cloudpickle sends functions of notebooks and scripts, lambdas and closures by value. So are the functions of a model
file, which no other process could import by name, and those of the built-in tasks, whose modules import jax. Only what
the function refers to travels with it; the rest of the file, such as the prior, does not.
"""

import sys
from typing import Any

from unle.errors import InputError

MODEL_PREFIX = "unle_model_"  # of the modules that are made from a user's file
_BY_VALUE = (MODEL_PREFIX, "unle_bench.tasks.")
LARGE = 10_000_000  # bytes: worth a hint


def ship(simulator: Any) -> bytes:
    """Serialise a simulator for another process of the same run.

    Raises:
        InputError: something that it refers to cannot be sent, such as an open file.
    """
    import cloudpickle

    modules = [module for name, module in sys.modules.items() if name.startswith(_BY_VALUE)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        blob = cloudpickle.dumps(simulator)
    except Exception as error:  # whatever the pieces of a user's object raise when asked to be sent
        raise InputError(
            f"expected a simulator that can be sent to other processes; got {type(error).__name__}: {error}; "
            "try opening files and building large objects inside the function"
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    if len(blob) > LARGE:
        raise InputError(
            f"expected a simulator of moderate size; got one that takes {len(blob) / 1e6:.0f} MB with the data that it "
            "refers to, and it travels with every piece of work; try loading the data from a file inside the function"
        )
    return blob
