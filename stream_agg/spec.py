"""The session spec: parsed, checked whole, with its defaults. No I/O; nothing of rules or rounds.

A bad spec is refused with every fault at once (`SpecError.faults`), because its author fixes them in one go.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Literal

from stream_agg.errors import EventError, SpecError
from stream_agg.events import ID_LENGTH, LARGEST_PAYOFF, is_text, parse_duration, short

MAX_EXPERTS, MAX_ACTIONS, MAX_LEVELS, NAME_LENGTH = 64, 1000, 1001, 128

SILENT = -1
"""The level index of an expert that gave no forecast: a symbol of its own, without row or price."""

ON_LEVEL = 1e-9
"""A report this close to a level is that level; a report this close to a midpoint is a tie and goes down. Ties are
meant in decimals: 0.65 lies half-way between 0.6 and 0.7 although the nearest doubles do not say so."""

Policy = Literal["robust", "hedge", "exp3", "hybrid"]
LEARNS_FROM = {"hedge": "state", "exp3": "payoff", "hybrid": "state"}
"""The feedback without which a policy is nothing; `robust` goes with any."""
DEFAULT_POLICY: dict[Any, Policy] = {"state": "hybrid", "payoff": "exp3"}
"""By feedback; `robust` without."""

POOL = ("experts", "mean", "median", "logistic", "robust", "recalibrated", "hedge")
"""What the pool of policy `hybrid` can hold: `experts` is each of them alone, one of them is `expert:NAME`."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the rule is solved anew: after `amount` events, after growth of the round by that share, after that many
    seconds of event time, or when the certified gap exceeds `amount` * U / sqrt(round) (theory of the certificate)."""

    kind: Literal["every", "growth", "seconds", "certified"]
    amount: float

    @property
    def always(self) -> bool:
        """Whether every event is decided by the rule of all events before it, as in Algorithm 1."""
        return self.kind == "every" and self.amount == 1

    def to_dict(self) -> dict[str, float]:
        """As in the spec's JSON."""
        return {self.kind: self.amount}


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The levels an expert may report, ascending, and the points half-way between them, infinity last: what is no
    number cannot be compared with them, even where there is one level."""

    levels: tuple[float, ...]
    midpoints: tuple[float, ...] = field(init=False, repr=False)
    index: Mapping[float, int] = field(init=False, repr=False, compare=False)
    """Where a report that is a level to the bit has its place."""

    def __post_init__(self) -> None:
        pairs = zip(self.levels, self.levels[1:], strict=False)
        object.__setattr__(self, "midpoints", (*((a + b) / 2 + ON_LEVEL for a, b in pairs), math.inf))
        object.__setattr__(self, "index", {z: i for i, z in enumerate(self.levels)})

    def nearest(self, p: float) -> int:
        """Index of the level nearest to `p`, the lower one of two."""
        return bisect_left(self.midpoints, p)

    def exact(self, p: float) -> int | None:
        """Index of the level that `p` is, if it is one."""
        i = self.nearest(p)
        return i if abs(self.levels[i] - p) <= ON_LEVEL else None


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """What a session is about. Build it with `from_dict`; the fields are trusted afterwards.

    `experts`: name -> alphabet, in the order of profiles. `actions`: name -> (payoff in state 0, payoff in state 1).
    `gamma` is the price of calibration violations per unit (`"auto"`: `rule.solver.Solver.settle`; inf: hard
    constraints), `epsilon` the calibration error allowed (`"auto"`: half as much again as the forecasts need;
    `"measured"`: what known states show, `learn.calibration.mean_error`, 0 before the first one, chosen anew when
    gamma is). A solve that takes more than `solve_limit_s` nominal seconds is given up and the old rule stays.
    `half_life`: every so many rounds, all counts are halved; the rule then follows a world that changes, and the
    regret bound, which needs one that does not, is void. `state_deadline`: a state later than that after its forecast
    is too late. `window`: how many decisions of the session are remembered for their state and against repeated ids.
    `policy` is `hybrid` by default where states are fed back, `exp3` where payoffs are; `horizon` is the number of
    rounds that learners set their rates for. `pool`: the members of policy `hybrid`, names of `POOL`; None for all.
    """

    session: str
    experts: Mapping[str, Alphabet]
    actions: Mapping[str, tuple[float, float]]
    feedback: Literal["none", "state", "payoff"] = "none"
    policy: Policy = "robust"
    # The order of the largest payoff slope, raised until the penalty is exact: realised payoff is flat around it.
    gamma: float | Literal["auto"] = "auto"
    # The paper's case; `epsilon_min` in every report says what the forecasts would need.
    epsilon: float | Literal["auto", "measured"] = 0.0
    # Adds at most 2 * 0.1 U sqrt(T) to the regret, whatever the number of profiles.
    schedule: Schedule = Schedule("certified", 0.1)
    # In nominal seconds of counted operations, not of a clock: a replay stops at the same point.
    solve_limit_s: float = 10.0
    # None: every round counts for ever, which is what the guarantees are about.
    half_life: int | None = None
    horizon: int | None = None
    seed: int = 0
    off_level: Literal["nearest", "reject"] = "nearest"
    missing: Literal["allow", "reject"] = "allow"
    # Long enough for outcomes that are published monthly.
    state_deadline: str = "P30D"
    # About 20 MB of a session at most, months of most feeds; with `hybrid` and 14 experts, 75 MB if all of it waits.
    window: int = 100_000
    pool: tuple[str, ...] | None = None

    @classmethod
    def from_dict(cls, value: Any) -> SessionSpec:
        """The spec of a decoded JSON object. `SpecError` lists every fault."""
        return _Parser(value).spec()

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads back to an equal spec."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["experts"] = {name: {"levels": list(a.levels)} for name, a in self.experts.items()}
        plain["actions"] = {name: list(payoffs) for name, payoffs in self.actions.items()}
        plain["gamma"] = "inf" if self.gamma == math.inf else self.gamma
        plain["schedule"] = self.schedule.to_dict()
        plain["pool"] = self.pool and list(self.pool)
        return plain

    @property
    def open_terms(self) -> bool:
        """Whether gamma or epsilon follow from what was seen."""
        return isinstance(self.gamma, str) or isinstance(self.epsilon, str)

    @property
    def members(self) -> tuple[str, ...]:
        """The pool of `hybrid`, each expert by its own name, `expert:NAME`."""
        named = [[_expert(x) for x in self.experts] if m == "experts" else [m] for m in self.pool or POOL]
        return tuple(dict.fromkeys(chain.from_iterable(named)))

    @property
    def state_deadline_us(self) -> int:
        """`state_deadline` in microseconds."""
        return parse_duration(self.state_deadline)

    def profile(self, forecasts: Mapping[str, float | None]) -> tuple[int, ...]:
        """Level indices of a reported profile, `SILENT` where an expert gave none, in the order of `experts`.

        `EventError`: an unknown expert, a missing one where `missing` is "reject", or an off-level report where
        `off_level` is "reject".
        """
        if len(forecasts) == len(self.experts):
            try:  # most profiles are whole
                if self.off_level == "nearest":
                    return tuple([bisect_left(a.midpoints, forecasts[name]) for name, a in self.experts.items()])  # type: ignore[type-var]
                return tuple([a.index[forecasts[name]] for name, a in self.experts.items()])  # type: ignore[index]
            except (KeyError, TypeError):
                pass
        indices, heard = [], 0
        reject = self.off_level == "reject"
        for name, alphabet in self.experts.items():
            p = forecasts.get(name)
            heard += name in forecasts
            if p is None:
                if self.missing == "reject":
                    raise EventError("missing_expert", f"expert {name!r} gave no forecast")
                indices.append(SILENT)
            elif p in alphabet.index:
                indices.append(alphabet.index[p])
            elif reject and alphabet.exact(p) is None:
                raise EventError("off_level", f"{p!r} is no level of expert {name!r}")
            else:
                indices.append(alphabet.nearest(p))
        if heard < len(forecasts):
            unknown = sorted(map(str, set(forecasts) - set(self.experts)))
            raise EventError("unknown_expert", f"no such expert in the spec: {', '.join(unknown)[:200]}")
        return tuple(indices)

    def reports(self, profile: Sequence[int]) -> dict[str, float | None]:
        """The levels of a profile of indices, by expert."""
        return {
            name: None if i == SILENT else a.levels[i]
            for (name, a), i in zip(self.experts.items(), profile, strict=True)
        }

    def index(self, levels: Sequence[float | None]) -> tuple[int, ...]:
        """Level indices of a profile given by value, in the order of `experts`; `EventError` where it fits not."""
        if len(levels) != len(self.experts):
            raise EventError("bad_event", f"a profile has {len(self.experts)} entries, got {len(levels)}")
        return self.profile(dict(zip(self.experts, levels, strict=True)))

    def changes_refused(self, new: SessionSpec) -> list[str]:
        """Fields in which `new` differs although a running session cannot change them."""
        may_change = {"gamma", "epsilon", "schedule", "solve_limit_s"}
        if self.policy == "robust":  # the learners' rates, and what is proven of them, hang on the horizon
            may_change.add("horizon")
        refused = [f.name for f in fields(self) if getattr(self, f.name) != getattr(new, f.name)]
        for name in ("experts", "actions"):  # their order is that of profiles, and of the actions stored by number
            if tuple(getattr(self, name)) != tuple(getattr(new, name)) and name not in refused:
                refused.append(name)
        return [name for name in refused if name not in may_change]


class _Parser:
    """Collects faults while it reads; one method a field."""

    def __init__(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise SpecError([f"expected a JSON object, got {type(value).__name__}"])
        self.value: Mapping[str, Any] = value
        self.faults: list[str] = []

    def spec(self) -> SessionSpec:
        known = {f.name for f in fields(SessionSpec)}
        self.faults += [f"{key}: no such field" for key in self.value if key not in known]
        given: dict[str, Any] = {"session": self._session(), "experts": self._experts(), "actions": self._actions()}
        readers: dict[str, Callable[[Any], Any]] = {
            "feedback": lambda v: self._word("feedback", v, "none", "state", "payoff"),
            "policy": self._policy,
            "gamma": self._gamma,
            "epsilon": self._epsilon,
            "schedule": self._schedule,
            "solve_limit_s": lambda v: self._positive("solve_limit_s", v),
            "half_life": lambda v: None if v is None else self._whole("half_life", v, 1),
            "horizon": lambda v: None if v is None else self._whole("horizon", v, 1),
            "seed": lambda v: self._whole("seed", v, None),
            "off_level": lambda v: self._word("off_level", v, "nearest", "reject"),
            "missing": lambda v: self._word("missing", v, "allow", "reject"),
            "state_deadline": self._state_deadline,
            "window": lambda v: self._whole("window", v, 1),
            "pool": lambda v: None if v is None else self._pool(v, given["experts"]),
        }
        for name, read in readers.items():
            if name in self.value and not (name == "policy" and self.value[name] is None):
                given[name] = read(self.value[name])
        feedback = given.get("feedback", "none")
        policy = given.setdefault("policy", DEFAULT_POLICY.get(feedback, "robust"))
        if feedback is not None and LEARNS_FROM.get(policy, feedback) != feedback:
            self._fault(f'policy: {policy!r} learns from "feedback": "{LEARNS_FROM[policy]}", not "{feedback}"')
        if given.get("epsilon") == "measured" and feedback in ("none", "payoff"):
            self._fault(f'epsilon: "measured" needs "feedback": "state", not "{feedback}"')
        if given.get("epsilon") == "measured" and given.get("gamma") == math.inf:
            self._fault('epsilon: "measured" may be less than hard constraints need: with "gamma": "inf", write "auto"')
        if given.get("pool") and policy not in ("hybrid", None):
            self._fault(f"pool: belongs to policy 'hybrid', not {policy!r}")
        if self.faults:
            raise SpecError(self.faults)
        return SessionSpec(**given)

    def _fault(self, text: str) -> Any:
        self.faults.append(text)
        return None

    def _session(self) -> str | None:
        name = self.value.get("session")
        if is_text(name, ID_LENGTH):
            return str(name)
        self._fault(f"session: expected text of 1 to {ID_LENGTH} characters")
        return None

    def _named(self, field_name: str, most: int) -> Mapping[str, Any]:
        value = self.value.get(field_name)
        if not isinstance(value, Mapping) or not 1 <= len(value) <= most:
            self._fault(f"{field_name}: expected an object with 1 to {most} names")
            return {}
        for name in value:
            if not is_text(name, NAME_LENGTH):
                self._fault(f"{field_name}: names are text of 1 to {NAME_LENGTH} characters, got {str(name)[:20]!r}")
        return value

    def _experts(self) -> dict[str, Alphabet]:
        return {name: self._alphabet(f"experts.{name}", v) for name, v in self._named("experts", MAX_EXPERTS).items()}

    def _alphabet(self, at: str, value: Any) -> Alphabet:
        levels = value.get("levels") if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and set(value) - {"levels"}:
            self._fault(f"{at}: no such field: {', '.join(sorted(map(str, set(value) - {'levels'})))}")
        count = levels if isinstance(levels, (int, float)) and _is_number(levels) else 0
        if 2 <= count <= MAX_LEVELS and count == int(count):
            top = int(count) - 1
            return Alphabet(tuple(k / top for k in range(top + 1)))
        if isinstance(levels, Sequence) and not isinstance(levels, str) and 1 <= len(levels) <= MAX_LEVELS:
            if not all(_is_number(z) and 0 <= z <= 1 for z in levels):
                self._fault(f"{at}.levels: every level is a number in [0, 1]")
            elif min((b - a for a, b in zip(sorted(levels), sorted(levels)[1:], strict=False)), default=1) < 1e-6:
                self._fault(f"{at}.levels: levels closer than 1e-6 to each other")
            else:
                return Alphabet(tuple(sorted(float(z) for z in levels)))
        else:
            self._fault(f"{at}.levels: expected a count of 2 to {MAX_LEVELS}, or a list of levels in [0, 1]")
        return Alphabet((0.0, 1.0))

    def _actions(self) -> dict[str, tuple[float, float]]:
        actions: dict[str, tuple[float, float]] = {}
        for name, pair in self._named("actions", MAX_ACTIONS).items():
            if (
                isinstance(pair, Sequence)
                and len(pair) == 2
                and all(_is_number(u) and abs(u) <= LARGEST_PAYOFF for u in pair)
            ):
                actions[name] = (float(pair[0]), float(pair[1]))
            else:
                self._fault(f"actions.{name}: expected [payoff in state 0, payoff in state 1], finite, at most 1e9")
        return actions

    def _word(self, name: str, value: Any, *words: str) -> Any:
        return value if value in words else self._fault(f"{name}: expected one of {', '.join(words)}")

    def _policy(self, value: Any) -> Any:
        return self._word("policy", value, "robust", *LEARNS_FROM)

    def _pool(self, value: Any, experts: Iterable[str]) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            return self._fault("pool: expected a list of at least one member")
        known, named = {*POOL, *map(_expert, experts)}, [m if isinstance(m, str) else short(m) for m in value]
        unknown = [m for m in dict.fromkeys(named) if m not in known]
        if unknown:
            self._fault(f"pool: no such member: {', '.join(unknown)[:200]}; there are {', '.join(POOL)}, expert:NAME")
        twice = [m for m in dict.fromkeys(named) if named.count(m) > 1]
        if twice:
            self._fault(f"pool: named twice: {', '.join(twice)[:200]}")
        return tuple(named)

    def _whole(self, name: str, value: Any, least: int | None) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
        if whole and (least is None or value >= least):
            return value
        return self._fault(f"{name}: expected a whole number" + (f" of at least {least}" if least is not None else ""))

    def _gamma(self, value: Any) -> Any:
        if value == "auto":
            return value
        if value == "inf" or value == math.inf:
            return math.inf
        if _is_number(value) and 0 < value <= 1e9:
            return float(value)
        return self._fault('gamma: expected a positive number, "inf" or "auto"')

    def _epsilon(self, value: Any) -> Any:
        if value in ("auto", "measured"):
            return value
        if _is_number(value) and 0 <= value <= 1:
            return float(value)
        return self._fault('epsilon: expected a number in [0, 1], "auto" or "measured"')

    def _positive(self, name: str, value: Any) -> Any:
        return float(value) if _is_number(value) and value > 0 else self._fault(f"{name}: expected a positive number")

    def _schedule(self, value: Any) -> Any:
        kinds = ("every", "growth", "seconds", "certified")
        if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in kinds:
            return self._fault(f"schedule: expected an object with one of {', '.join(kinds)}")
        kind, amount = next(iter(value.items()))
        # Beyond 64 bits it is no number that JSON writers take: the session could never be stored.
        if not _is_number(amount) or amount <= 0 or (kind == "every" and (amount >= 2**63 or amount != int(amount))):
            what = "a whole number of at least 1" if kind == "every" else "a positive number"
            return self._fault(f"schedule.{kind}: expected {what}")
        return Schedule(kind, int(amount) if kind == "every" else float(amount))

    def _state_deadline(self, value: Any) -> Any:
        try:
            return value if parse_duration(value) > 0 else self._fault("state_deadline: must be longer than nothing")
        except (ValueError, TypeError):
            return self._fault("state_deadline: expected an ISO 8601 duration such as P30D or PT12H")


def _expert(name: str) -> str:
    return f"expert:{name}"


def _is_number(value: Any) -> bool:
    # Against the largest float, not with isfinite: that raises on integers which no float can hold.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
