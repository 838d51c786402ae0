"""A circuit that works: one draw of the prior in a hundred does, and looking for one takes time.

Rounded to four digits, it was valid in 20 simulations of 20, with a period of 1165 ms, the animal's being 1171. The
rest of its rhythm is another: the burst of AB/PD, for instance, is half as long as the animal's.

Example:
    >>> from unle_bench.pyloric.example import RHYTHMIC
    >>> from unle_bench.pyloric.specification import LOWER, UPPER
    >>> bool(((LOWER <= RHYTHMIC) & (RHYTHMIC <= UPPER)).all())
    True
"""

import numpy as np

RHYTHMIC = np.array(
    [
        *(420.6, 5.94, 2.737, 48.33, 12.05, 121.4, 0.002518, 0.007624),  # AB/PD
        *(141.9, 1.568, 5.877, 52.57, 5.847, 38.47, 0.04452, 0.01304),  # LP
        *(305.6, 4.05, 2.222, 55.4, 0.9058, 142.4, 0.04947, 0.001587),  # PY
        *(-17.01, -17.17, -9.452, -10.32, -8.004, -10.16, -8.261),  # synapses
    ]
)
