"""How a run of several rounds went."""

from unle.diagnose import Rounds
from unle.plot.style import LEARNED, style

PANELS = (
    ("valid", "share of valid simulations"),
    ("distance", "distance of x from x_o (sd)"),
    ("width", "width of the proposal"),
)


def rounds(record: Rounds):
    """Show valid rate, distance to x_o and width of the proposal, round by round.

    Args:
        record: of `unle.diagnose.rounds`.
    """
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(8.4, 2.6), layout="constrained")
        for axis, (name, title) in zip(figure.subplots(1, 3), PANELS, strict=True):
            axis.plot(record.number + 1, getattr(record, name), "o-", ms=4, color=LEARNED)
            axis.set(title=title, xlabel="round")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.set_ylim(bottom=0)
        figure.draw_without_rendering()
    return figure
