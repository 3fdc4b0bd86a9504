"""The linear programs over rho, built once as arrays and solved by HiGHS. The only file that knows highspy.

Columns: N(e) rho(e) of every seen profile, cut into the segments of the cost where it is piecewise linear; then one
column for the amount by which each calibration row is exceeded and one for the amount by which it is missed.
Rows: sum_{e: e^i = z} N(e) rho(e) = z N_{i,z}, ranged by epsilon N_{i,z} to either side. Everything is in counts: no
division, and the right-hand side is level times count, never a running sum.
"""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from stream_agg.errors import InfeasibleError, SolveError
from stream_agg.rule.envelope import Envelope
from stream_agg.rule.solution import DEAD, DECIMALS, TOLERANCE, Solution, generic
from stream_agg.rule.support import Support

Floats = NDArray[np.float64]


def robust(support: Support, cost: Envelope, gamma: float, epsilon: float) -> Solution:
    """min_rho sum N V(rho) + gamma * violations, with its prices (theory: the reduced program).

    gamma = inf makes the rows hard; `InfeasibleError` if no rho satisfies them.
    """
    model = _Model(support, np.tile(cost.slopes, (len(support.counts), 1)), cost.lengths, gamma)
    margin = epsilon * support.mass
    model.bound_rows(margin + np.where(support.mass > 0, DEAD * generic(len(support.mass)), 0.0))
    if not model.run():
        raise InfeasibleError(epsilon, smallest_epsilon(support))
    duals = np.clip(np.round(-model.row_duals() / cost.unit, DECIMALS) * cost.unit, -gamma, gamma)
    duals[support.mass == 0] = 0.0
    rho = model.rho()
    model.bound_rows(margin)  # the same basis answers without the extra dead zone
    if model.run():  # at an epsilon that is barely feasible the tolerance of the solver may say no
        rho = model.rho()
    duals += 0.0
    paid = float(duals @ (support.levels * support.mass)) + epsilon * float(np.abs(duals) @ support.mass)
    lower = float(support.counts @ cost.phi(support.prices(duals))) - paid
    payoff = float(support.counts @ cost.value(rho))
    excess = support.violation(rho, epsilon)
    return Solution(duals, lower, payoff, excess, support.residuals(rho), support.mass, support.total)


def worst_case(support: Support, slope: Floats, gamma: float, epsilon: float) -> tuple[float, Floats]:
    """min_rho sum_e slope(e) rho(e) + gamma * violations and its rho; `slope` (k,) in counts, linear in rho."""
    per_count = (slope / support.counts)[:, None]
    model = _Model(support, per_count, np.ones(1), gamma)
    model.bound_rows(epsilon * support.mass)
    if not model.run():
        raise InfeasibleError(epsilon, smallest_epsilon(support))
    rho = model.rho()
    penalty = 0.0 if np.isinf(gamma) else gamma * support.violation(rho, epsilon)
    return float(slope @ rho) + penalty, rho


def smallest_epsilon(support: Support) -> float:
    """The smallest epsilon for which some rho is calibrated within it at every row; 0 without rows.

    Newton's method on the least violation, which falls convexly in epsilon at the rate sum N |lambda|: exact after a
    few warm solves, and three times faster than epsilon as a column. From below it never overshoots; half the spread
    of the experts' mean reports is a lower bound where nobody was ever silent.
    """
    model = _Model(support, np.zeros((len(support.counts), 1)), np.ones(1), 1.0)
    epsilon = support.half_spread()
    for _ in range(_NEWTON_STEPS):
        model.bound_rows(epsilon * support.mass)
        if not model.run():
            break
        violation = model.cost()
        if violation <= TOLERANCE * max(1.0, support.total):
            return 0.0 if epsilon < TOLERANCE else round(epsilon, DECIMALS)
        epsilon += violation / float(np.abs(model.row_duals()) @ support.mass)
    raise SolveError("Newton's method for the smallest epsilon did not end")


_NEWTON_STEPS = 200


class _Model:
    """One HiGHS instance: column block (k, L) of profile segments, then two slack columns a row; r rows."""

    def __init__(self, support: Support, costs: Floats, lengths: Floats, gamma: float) -> None:
        self.support, self.segments = support, len(lengths)
        k, r = len(support.counts), len(support.mass)
        upper = (support.counts[:, None] * lengths).ravel()
        slack_cost = np.full(0 if np.isinf(gamma) else 2 * r, gamma)
        spoke = np.repeat(support.rows < r, self.segments, axis=0)
        index = np.repeat(support.rows, self.segments, axis=0)[spoke]
        value = np.ones(len(index))
        sizes = spoke.sum(axis=1)
        if len(slack_cost):
            index = np.concatenate([index, np.arange(r), np.arange(r)])
            value = np.concatenate([value, np.repeat([-1.0, 1.0], r)])
            sizes = np.concatenate([sizes, np.ones(2 * r, dtype=np.int64)])
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = k * self.segments + len(slack_cost), r
        lp.col_cost_ = np.concatenate([costs.ravel(), slack_cost])
        lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.concatenate([upper, np.full(len(slack_cost), highspy.kHighsInf)])
        lp.row_lower_, lp.row_upper_ = np.zeros(lp.num_row_), np.zeros(lp.num_row_)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(sizes)])
        lp.a_matrix_.index_, lp.a_matrix_.value_ = index, value
        self.highs = highspy.Highs()
        for name, option in _OPTIONS.items():
            self.highs.setOptionValue(name, option)
        self.highs.passModel(lp)

    def bound_rows(self, margin: Floats) -> None:
        """Right-hand side z N, ranged by `margin` (r,) to either side."""
        centre = self.support.levels * self.support.mass
        lower, upper = centre - margin, centre + margin
        rows = np.arange(len(lower), dtype=np.int32)
        self.highs.changeRowsBounds(len(rows), rows, lower, upper)

    def run(self) -> bool:
        """True at an optimum, False where no rho satisfies the rows; `SolveError` otherwise."""
        self.highs.run()
        status = self.highs.getModelStatus()
        if status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
            return True
        if status == highspy.HighsModelStatus.kInfeasible:
            return False
        raise SolveError(f"HiGHS stopped with status {self.highs.modelStatusToString(status)!r}")

    def row_duals(self) -> Floats:
        """Derivative of the optimal cost in each row's right-hand side, shape (r,)."""
        return np.array(self.highs.getSolution().row_dual, dtype=np.float64)

    def rho(self) -> Floats:
        """rho(e) of every profile, shape (k,), in [0, 1]."""
        columns = np.array(self.highs.getSolution().col_value, dtype=np.float64)
        k = len(self.support.counts)
        held = columns[: k * self.segments].reshape(k, self.segments).sum(axis=1)
        return np.asarray(np.clip(held / self.support.counts, 0.0, 1.0))

    def cost(self) -> float:
        """The optimal cost."""
        return float(self.highs.getInfo().objective_function_value)


_OPTIONS: dict[str, object] = {
    # One thread and no presolve: the same answer on every machine, and presolve does not pay here.
    "output_flag": False,
    "threads": 1,
    "presolve": "off",
    "solver": "simplex",
    "simplex_strategy": 1,  # dual simplex; primal was 3 to 30 times slower
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}
