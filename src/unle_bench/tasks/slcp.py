r"""Simple likelihood, complex posterior: four points of a plane, five parameters of their normal law.

    m = (theta_1, theta_2),  s_1 = theta_3^2,  s_2 = theta_4^2,  rho = tanh theta_5,     theta ~ U[-3, 3]^5,
    S = [[s_1^2, rho s_1 s_2], [rho s_1 s_2, s_2^2]] + 1e-6 I,     x = four independent draws of N(m, S).

The signs of theta_3 and theta_4 do not matter: four equal modes.  Exact draws use three facts.

* Given S the mean is conjugate: m ~ N(mean of the points, S / 4), cut to the box.
* Without the box, integrating m out leaves |S|^(-3/2) exp(-tr(S^-1 A) / 2) with A the scatter of the points:
  a density of three bounded variables, drawn from a fine grid and corrected by rejection.
* Signs are drawn last.

The box enters as a weight: m_1 is drawn from its normal cut to [-3, 3], m_2 from its conditional cut
likewise, and the probabilities of the two intervals weigh the draw.
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from unle.space import Prior
from unle_bench.tasks.exact_draws import draw_by_rejection, draw_truncated_normal, log_truncated_mass
from unle_bench.tasks.task import Task

N_POINTS = 4
WALL = 3.0
RIDGE = 1e-6
SMALLEST_SCALE = 1e-5  # of |theta_3|, |theta_4| on the grid; the prior mass below it is negligible
LEAST_MASS = 1e-8  # a slice of the grid with less than this share of the mass is cut off


def _covariance(theta: Float[np.ndarray, "n 5"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return S_11, S_12 and S_22."""
    s_1, s_2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, np.tanh(theta[:, 4])
    return s_1**2 + RIDGE, rho * s_1 * s_2, s_2**2 + RIDGE


def simulate_rows(theta: Float[np.ndarray, "n 5"], rng: np.random.Generator) -> Float[np.ndarray, "n 8"]:
    """Simulate one x per row of theta: the points (x_1, y_1, x_2, y_2, ...)."""
    theta = np.asarray(theta, dtype=np.float64)
    s_11, s_12, s_22 = (entry[:, None] for entry in _covariance(theta))
    first, second = rng.normal(size=(2, len(theta), N_POINTS))
    below = s_12 / np.sqrt(s_11)
    x = theta[:, 0:1] + np.sqrt(s_11) * first
    y = theta[:, 1:2] + below * first + np.sqrt(s_22 - below**2) * second
    return np.stack([x, y], axis=2).reshape(len(theta), 2 * N_POINTS).astype(np.float32)


def on_device(key: PRNGKeyArray, theta: Float[Array, " 5"]) -> Float[Array, " 8"]:
    """Simulate one x in JAX."""
    first, second = jr.normal(key, (2 * N_POINTS,)).reshape(2, N_POINTS)
    s_1, s_2, rho = theta[2] ** 2, theta[3] ** 2, jnp.tanh(theta[4])
    sd_1 = jnp.sqrt(s_1**2 + RIDGE)
    below = rho * s_1 * s_2 / sd_1
    # (1 - rho^2) s_2^2 + ..., written so that nothing cancels in single precision
    rest = s_2**2 * (RIDGE + (1 - rho**2) * s_1**2) / sd_1**2 + RIDGE
    return jnp.stack([theta[0] + sd_1 * first, theta[1] + below * first + jnp.sqrt(rest) * second], axis=1).ravel()


def log_likelihood_rows(theta: Float[np.ndarray, "n 5"], x: Float[np.ndarray, " 8"]) -> Float[np.ndarray, " n"]:
    """Return the sum over the points of log N(point; m, S)."""
    s_11, s_12, s_22 = (entry[:, None] for entry in _covariance(theta))
    right, up = x[0::2] - theta[:, 0:1], x[1::2] - theta[:, 1:2]
    determinant = s_11 * s_22 - s_12**2
    squares = (s_22 * right**2 - 2 * s_12 * right * up + s_11 * up**2) / determinant
    return np.sum(-0.5 * squares - 0.5 * np.log(determinant) - np.log(2 * np.pi), axis=1)


def draw_posterior(x_o: Float[np.ndarray, " 8"], n: int, rng: np.random.Generator) -> Float[np.ndarray, "n 5"]:
    """Draw exactly from the posterior: covariance from a grid, mean given covariance, then the signs."""
    points = x_o.reshape(N_POINTS, 2)
    centre = points.mean(axis=0)
    grid = _Grid(centre, (points - centre).T @ (points - centre))

    def propose(count: int) -> tuple[Float[np.ndarray, "count 5"], Float[np.ndarray, " count"]]:
        shape, log_weight = grid.draw(count, rng)
        theta = np.concatenate([np.zeros((count, 2)), shape], axis=1)
        s_11, s_12, s_22 = (entry / N_POINTS for entry in _covariance(theta))
        sd_1, slope = np.sqrt(s_11), s_12 / s_11
        theta[:, 0] = draw_truncated_normal(np.broadcast_to(centre[0], count), sd_1, rng, wall=WALL)
        mean_2, sd_2 = centre[1] + slope * (theta[:, 0] - centre[0]), np.sqrt(s_22 - slope * s_12)
        theta[:, 1] = draw_truncated_normal(mean_2, sd_2, rng, wall=WALL)
        # The grid knows the box through the marginals of m; exact is marginal of m_1, conditional of m_2.
        log_weight += log_truncated_mass(mean_2, sd_2, wall=WALL) - log_truncated_mass(
            centre[1], np.sqrt(s_22), wall=WALL
        )
        theta[:, 2:4] *= rng.choice([-1.0, 1.0], (count, 2))
        return theta, log_weight

    return draw_by_rejection(propose, n, rng).draws


class _Grid:
    """Piecewise constant proposal for (|theta_3|, |theta_4|, theta_5), on cells that follow the posterior.

    The coordinates are log |theta_3|, log |theta_4 / theta_3| and theta_5: a strong correlation pins the
    ratio of the two scales, and in these coordinates that ridge is aligned with an axis.  A coarse grid over
    everything possible finds the region that holds the mass; two finer ones resolve it.

    Args:
        centre: mean of the points, (2,).
        scatter: A, the sum of outer products of the centred points, (2, 2).
    """

    def __init__(self, centre: Float[np.ndarray, " 2"], scatter: Float[np.ndarray, "2 2"]):
        self._centre, self._scatter = centre, scatter
        top, bottom = np.log(WALL), np.log(SMALLEST_SCALE)
        low, high = np.array([bottom, bottom - top, -WALL]), np.array([top, top - bottom, WALL])
        for cells in ((64, 512, 48), (48, 160, 64), (64, 192, 96)):
            edges = [np.linspace(a, b, k + 1) for a, b, k in zip(low, high, cells, strict=True)]
            middles = np.meshgrid(*[(e[:-1] + e[1:]) / 2 for e in edges], indexing="ij", sparse=True)
            log_density = self._log_density(*middles)
            reaches_inside = edges[0][:-1, None, None] + edges[1][None, :-1, None] < top
            self._log_cells = np.where(reaches_inside, log_density, -np.inf)
            self._edges = edges
            mass = np.exp(self._log_cells - self._log_cells.max())
            mass /= mass.sum()
            for axis in range(3):
                others = tuple(other for other in range(3) if other != axis)
                used = np.flatnonzero(mass.sum(axis=others) > LEAST_MASS)
                low[axis] = edges[axis][max(used[0] - 1, 0)]
                high[axis] = edges[axis][min(used[-1] + 2, len(edges[axis]) - 1)]
        self._cumulative = np.cumsum(mass)

    def _log_density(self, log_1: np.ndarray, log_ratio: np.ndarray, theta_5: np.ndarray) -> np.ndarray:
        """Return the log density of the three coordinates, m integrated out, ignoring the wall of theta_4."""
        log_2 = log_1 + log_ratio
        s_1, s_2, rho = np.exp(2 * log_1), np.exp(2 * log_2), np.tanh(theta_5)
        s_11, s_12, s_22 = s_1**2 + RIDGE, rho * s_1 * s_2, s_2**2 + RIDGE
        determinant = s_11 * s_22 - s_12**2
        (a_11, a_12), (_, a_22) = self._scatter
        squares = (s_22 * a_11 - 2 * s_12 * a_12 + s_11 * a_22) / determinant
        in_box = log_truncated_mass(self._centre[0], np.sqrt(s_11 / N_POINTS), wall=WALL)
        in_box = in_box + log_truncated_mass(self._centre[1], np.sqrt(s_22 / N_POINTS), wall=WALL)
        jacobian = log_1 + log_2  # from the logs back to theta_3 and theta_4, on which the prior is flat
        return -0.5 * (N_POINTS - 1) * np.log(determinant) - 0.5 * squares + in_box + jacobian

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw (|theta_3|, |theta_4|, theta_5), (count, 3), and log(density / proposal) up to a constant."""
        flat = np.searchsorted(self._cumulative, rng.uniform(0, self._cumulative[-1], count))
        flat = np.minimum(flat, self._log_cells.size - 1)
        cells = np.unravel_index(flat, self._log_cells.shape)
        within = rng.uniform(size=(3, count))
        log_1, log_ratio, theta_5 = (
            e[k] + t * (e[k + 1] - e[k]) for e, k, t in zip(self._edges, cells, within, strict=True)
        )
        shape = np.stack([np.exp(log_1), np.exp(log_1 + log_ratio), theta_5], axis=1)
        log_weight = self._log_density(log_1, log_ratio, theta_5) - self._log_cells[cells]
        return shape, np.where(shape[:, 1] <= WALL, log_weight, -np.inf)


TASK = Task(
    name="slcp",
    description="five parameters of a normal law from four points of the plane; four equal modes",
    prior=Prior.uniform(np.full(5, -WALL), np.full(5, WALL)),
    names_x=tuple(f"{axis}_{i}" for i in range(1, N_POINTS + 1) for axis in ("x", "y")),
    simulate_rows=simulate_rows,
    log_likelihood_rows=log_likelihood_rows,
    draw_posterior=draw_posterior,
    on_device=on_device,
)
