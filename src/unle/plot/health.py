"""Pictures of the remaining checks: one small figure each."""

import numpy as np

from unle.diagnose import Check
from unle.plot.inputs import plain_label
from unle.plot.style import EXACT, FAINT, LEARNED, THIRD, clear_to, style

SIZE = (4.4, 2.8)


def outlier_distances(check: Check):
    """Show how far x_o is from the simulations, among how far they are from each other."""
    with style():
        figure, axis = _panel()
        distances = np.asarray(check.arrays["distances"], float)
        axis.hist(distances, bins=50, color=LEARNED, alpha=0.6, label="simulations")
        for k, value in enumerate(np.asarray(check.arrays["observed"], float)[:20]):
            axis.axvline(value, color=EXACT, label=None if k else "x_o")
        axis.set(xlabel="distance to the fifth neighbour", yticks=[])
        axis.legend()
        figure.draw_without_rendering()
    return figure


def sampler_path(check: Check):
    """Show R-hat and effective draws by parameter, and the tempering path if there was one."""
    has_path = "temperatures" in check.arrays
    with style():
        figure, axes = _panels(3 if has_path else 2)
        place = np.arange(len(check.arrays["r_hat"]))
        axes[0].plot(place, np.minimum(check.arrays["r_hat"], 5), "o", ms=4, color=LEARNED)
        axes[0].axhline(1.05, color=EXACT, lw=0.8, ls="--", label="1.05")
        axes[0].set(title="R-hat", ylim=(0.99, max(1.06, 1.02 * float(np.min([5, check.numbers["r_hat"]])))))
        axes[0].legend()
        axes[1].plot(place, check.arrays["ess_bulk"], "o", ms=4, color=LEARNED, label="bulk")
        axes[1].plot(place, check.arrays["ess_tail"], "^", ms=4, color=THIRD, label="tail")
        axes[1].axhline(400, color=EXACT, lw=0.8, ls="--")
        axes[1].set(title="effective draws")
        axes[1].set_ylim(bottom=0)
        axes[1].legend()
        for axis in axes[:2]:
            names = [plain_label(name) for name in check.labels]
            step = max(1, len(names) // 8)
            axis.set_xticks(place[::step], names[::step], rotation=45 if len(names) > 3 else 0)
            axis.margins(x=0.2)
        if has_path:
            path = np.asarray(check.arrays["temperatures"], float)
            axes[2].plot(np.arange(1, len(path) + 1), path, ".-", color=LEARNED, label="temperature")
            axes[2].plot(np.arange(1, len(path) + 1), check.arrays["ess_path"], ".--", color=THIRD, label="ESS / N")
            axes[2].set(title="tempering", xlabel="step", ylim=(0, 1.05))
            axes[2].legend()
        figure.draw_without_rendering()
    return figure


def training_path(check: Check):
    """Show the held-out gain, with the best chunk marked, and the energy gap; of a descent, its losses."""
    with style():
        figure, axes = _panels(2 if "gain" in check.arrays else 1)
        axes = np.atleast_1d(axes)
        if "gain" in check.arrays:
            gain, gap = (np.asarray(check.arrays[name], float) for name in ("gain", "gap"))
            chunks, best = np.arange(1, len(gain) + 1), int(check.numbers["best_chunk"]) - 1
            axes[0].plot(chunks, gain, ".-", color=LEARNED)
            axes[0].plot(chunks[best], gain[best], "D", ms=5, color=EXACT, label="best")
            axes[0].set(title="held-out gain (nats)")
            axes[1].plot(chunks, gap, ".-", color=LEARNED)
            for limit in (-0.5, 0.5):
                axes[1].axhline(limit, color=EXACT, lw=0.8, ls="--")
            axes[1].set(title="energy gap (nats)")
            for axis in axes:
                axis.axhline(0, color=FAINT, lw=0.6, zorder=0)
        else:
            chunks = np.arange(1, len(check.arrays["loss"]) + 1)
            axes[0].plot(chunks, check.arrays["loss"], ".--", color=THIRD, label="training")
            axes[0].plot(chunks, check.arrays["held_out"], ".-", color=LEARNED, label="held out")
            axes[0].set(title="loss")
        axes[0].legend()
        for axis in axes:
            axis.set_xlabel("chunk of training")
            axis.xaxis.get_major_locator().set_params(integer=True)
        figure.draw_without_rendering()
    return figure


def density_and_draws(check: Check):
    """Show the density on the grid, with draws over it."""
    with style():
        draws = np.asarray(check.arrays["draws"], float)
        axis_0 = check.arrays["axis_0"]
        if "axis_1" not in check.arrays:
            figure, axis = _panel()
            axis.hist(draws[:, 0], bins=60, density=True, color=FAINT, alpha=0.6, label="draws")
            axis.plot(axis_0, check.arrays["density"], color=LEARNED, label="density")
            axis.legend()
        else:
            figure, (axis, other) = _panels(2, shared=True)
            density = np.asarray(check.arrays["density"]).T
            axis.pcolormesh(axis_0, check.arrays["axis_1"], density, cmap=clear_to(LEARNED), rasterized=True)
            axis.set_title("density")
            other.plot(draws[:, 0], draws[:, 1], ".", ms=1.5, mew=0, alpha=0.5, color=LEARNED, rasterized=True)
            other.set_title("draws")
        figure.draw_without_rendering()
    return figure


def member_means(check: Check):
    """Show every member's own posterior mean, in standard deviations of the mixture."""
    with style():
        figure, axis = _panel()
        means = np.asarray(check.arrays["means"], float)
        for row in means:
            axis.plot(np.arange(len(row)), row, "o", ms=4, color=LEARNED, alpha=0.7)
        axis.axhline(0, color=FAINT, lw=0.8)
        names = [plain_label(name) for name in check.labels]
        step = max(1, len(names) // 8)
        axis.set_xticks(np.arange(means.shape[1])[::step], names[::step], rotation=45 if len(names) > 3 else 0)
        limit = max(1.0, 1.1 * float(np.abs(means).max()))
        axis.set(ylim=(-limit, limit), ylabel="member's mean, in sd of the mixture")
        axis.margins(x=0.2)
        figure.draw_without_rendering()
    return figure


def chain_ends(check: Check):
    """Show where chains from data ended, beside other data, in the first two directions that matter."""
    with style():
        figure, (left, right) = _panels(2, shared=True)
        ends, others = (np.asarray(check.arrays[name], float) for name in ("ends", "others"))
        _, _, directions = np.linalg.svd(others - others.mean(axis=0), full_matrices=False)
        for axis, values, title, colour in ((left, others, "data", EXACT), (right, ends, "after long chains", LEARNED)):
            flat = (values - others.mean(axis=0)) @ directions[:2].T
            axis.plot(flat[:, 0], flat[:, -1], ".", ms=4, mew=0, color=colour, alpha=0.7, rasterized=True)
            axis.set_title(title)
        figure.draw_without_rendering()
    return figure


def local_probabilities(check: Check):
    """Show the statistic at x_o among those by chance."""
    with style():
        figure, axis = _panel()
        axis.hist(check.arrays["null"], bins=30, color=LEARNED, alpha=0.6, label="by chance")
        axis.axvline(check.numbers["statistic"], color=EXACT, label="at x_o")
        axis.set(xlabel="mean squared conviction of the classifier", yticks=[])
        axis.set_xlim(left=0)
        axis.legend()
        figure.draw_without_rendering()
    return figure


def likelihood_rank(check: Check):
    """Show the log-likelihood of x_o among those of its replicas."""
    with style():
        figure, axis = _panel()
        axis.hist(check.arrays["of_replicas"], bins=30, color=LEARNED, alpha=0.6, label="replicas")
        axis.axvline(float(check.arrays["of_x_o"][0]), color=EXACT, label="x_o, mean over the draws")
        axis.set(xlabel="log q(x | theta) at posterior draws", yticks=[])
        axis.legend()
        figure.draw_without_rendering()
    return figure


def normaliser_spread(check: Check):
    """Show log Z over the posterior."""
    with style():
        figure, axis = _panel()
        log_z = np.asarray(check.arrays["log_z"], float)
        axis.hist(log_z - log_z.mean(), bins=30, color=LEARNED, alpha=0.6)
        limit = max(0.5, 1.1 * float(np.abs(log_z - log_z.mean()).max()))
        axis.set(xlabel="log Z(theta) at posterior draws (nats, about its mean)", yticks=[], xlim=(-limit, limit))
        figure.draw_without_rendering()
    return figure


def _panel():
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
    return figure, figure.subplots()


def _panels(n: int, *, shared: bool = False):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.6 * n + 0.4, 2.6), layout="constrained")
    return figure, figure.subplots(1, n, sharex=shared, sharey=shared)
