"""The session spec: every fault at once, defaults, levels and ties, what a running session may change."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_agg.errors import EventError, SpecError
from stream_agg.spec import MAX_ACTIONS, MAX_EXPERTS, MAX_LEVELS, ON_LEVEL, SILENT, Alphabet, Schedule, SessionSpec

LEAST: dict[str, Any] = {
    "session": "paris-rain",
    "experts": {"ecmwf": {"levels": 11}, "gfs": {"levels": [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]}},
    "actions": {"stay": [1.0, 0.0], "prepare": [0.0, 3.0]},
}
HUGE = 10**400  # an integer that no float can hold
BAD: list[tuple[str, Any, str]] = [
    ("session", None, "session: expected text of 1 to 512"),
    ("session", "", "session: expected text"),
    ("session", "x" * 513, "session: expected text"),
    ("session", 5, "session: expected text"),
    ("session", "\ud800", "session: expected text"),
    ("experts", {}, "experts: expected an object with 1 to 64 names"),
    ("experts", ["ecmwf"], "experts: expected an object"),
    ("experts", {"": {"levels": 2}}, "experts: names are text of 1 to 128"),
    ("experts", {"x" * 129: {"levels": 2}}, "experts: names are text"),
    ("experts", {"\udfff": {"levels": 2}}, "experts: names are text"),
    ("experts", {7: {"levels": 2}}, "experts: names are text"),
    ("experts", {"a": 11}, "experts.a.levels: expected a count"),
    ("experts", {"a": {}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": 1}}, "experts.a.levels: expected a count of 2 to 1001"),
    ("experts", {"a": {"levels": 1002}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": 2.5}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": True}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": HUGE}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": math.nan}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": "0.5"}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": []}}, "experts.a.levels: expected a count"),
    ("experts", {"a": {"levels": [0.5, 1.1]}}, r"experts.a.levels: every level is a number in \[0, 1\]"),
    ("experts", {"a": {"levels": [0.5, True]}}, "experts.a.levels: every level is a number"),
    ("experts", {"a": {"levels": [0.5, math.nan]}}, "experts.a.levels: every level is a number"),
    ("experts", {"a": {"levels": [0.5, None]}}, "experts.a.levels: every level is a number"),
    ("experts", {"a": {"levels": [0.5, HUGE]}}, "experts.a.levels: every level is a number"),
    ("experts", {"a": {"levels": [0.5, 0.5]}}, "experts.a.levels: levels closer than 1e-6"),
    ("experts", {"a": {"levels": 2, "weight": 1}}, "experts.a: no such field: weight"),
    ("actions", {}, "actions: expected an object with 1 to 1000 names"),
    ("actions", [[1, 0]], "actions: expected an object"),
    ("actions", {"": [1, 0]}, "actions: names are text"),
    ("actions", {"a": [1]}, r"actions.a: expected \[payoff in state 0, payoff in state 1\]"),
    ("actions", {"a": [1, 0, 2]}, "actions.a: expected"),
    ("actions", {"a": "10"}, "actions.a: expected"),
    ("actions", {"a": [1, None]}, "actions.a: expected"),
    ("actions", {"a": [1, True]}, "actions.a: expected"),
    ("actions", {"a": [1, math.inf]}, "actions.a: expected"),
    ("actions", {"a": [1, math.nan]}, "actions.a: expected"),
    ("actions", {"a": [1, 1e10]}, "actions.a: expected"),
    ("actions", {"a": [1, HUGE]}, "actions.a: expected"),
    ("feedback", "states", "feedback: expected one of none, state, payoff"),
    ("feedback", ["none"], "feedback: expected one of"),
    ("policy", "ridge", "policy: expected one of robust"),
    ("policy", [], "policy: expected one of robust"),
    ("gamma", 0, "gamma: expected a positive number"),
    ("gamma", -1, "gamma: expected"),
    ("gamma", True, "gamma: expected"),
    ("gamma", "1", "gamma: expected"),
    ("gamma", None, "gamma: expected"),
    ("gamma", math.nan, "gamma: expected"),
    ("gamma", HUGE, "gamma: expected"),
    ("epsilon", -0.1, r"epsilon: expected a number in \[0, 1\]"),
    ("epsilon", 1.1, "epsilon: expected"),
    ("epsilon", math.nan, "epsilon: expected"),
    ("epsilon", None, "epsilon: expected"),
    ("epsilon", "some", r'epsilon: expected a number in \[0, 1\], "auto" or "measured"'),
    ("epsilon", "measured", r'epsilon: "measured" needs "feedback": "state", not "none"'),
    ("solve_limit_s", 0, "solve_limit_s: expected a positive number"),
    ("half_life", 0, "half_life: expected a whole number of at least 1"),
    ("schedule", {}, "schedule: expected an object with one of"),
    ("schedule", {"every": 1, "growth": 0.1}, "schedule: expected an object with one of"),
    ("schedule", {"daily": 1}, "schedule: expected an object with one of"),
    ("schedule", "every", "schedule: expected an object with one of"),
    ("schedule", {"every": 0}, "schedule.every: expected a whole number of at least 1"),
    ("schedule", {"every": 1.5}, "schedule.every: expected a whole number"),
    ("schedule", {"growth": 0}, "schedule.growth: expected a positive number"),
    ("schedule", {"seconds": math.inf}, "schedule.seconds: expected a positive number"),
    ("schedule", {"certified": HUGE}, "schedule.certified: expected a positive number"),
    ("horizon", 0, "horizon: expected a whole number of at least 1"),
    ("horizon", 10.0, "horizon: expected a whole number"),
    ("horizon", True, "horizon: expected a whole number"),
    ("seed", 1.5, "seed: expected a whole number"),
    ("seed", None, "seed: expected a whole number"),
    ("seed", 2**63, "seed: expected a whole number"),
    ("off_level", "drop", "off_level: expected one of nearest, reject"),
    ("missing", "deny", "missing: expected one of allow, reject"),
    ("state_deadline", "P0D", "state_deadline: must be longer than nothing"),
    ("state_deadline", "30 days", "state_deadline: expected an ISO 8601 duration"),
    ("state_deadline", 30, "state_deadline: expected an ISO 8601 duration"),
    ("state_deadline", None, "state_deadline: expected an ISO 8601 duration"),
    ("state_deadline", "P99999999999999D", "state_deadline: expected an ISO 8601 duration"),
    ("window", 0, "window: expected a whole number of at least 1"),
    ("pool", [], "pool: expected a list of at least one member"),
    ("pool", "mean", "pool: expected a list of at least one member"),
    ("colour", "red", "colour: no such field"),
]


def faults(spec: Any) -> tuple[str, ...]:
    with pytest.raises(SpecError) as caught:
        SessionSpec.from_dict(spec)
    assert caught.value.reason == "bad_spec"
    assert str(caught.value) == "; ".join(caught.value.faults)
    return caught.value.faults


@pytest.mark.parametrize(("field", "value", "fault"), BAD)
def test_a_bad_field_has_one_fault(field: str, value: Any, fault: str) -> None:
    with pytest.raises(SpecError, match=fault) as caught:
        SessionSpec.from_dict({**LEAST, field: value})
    assert len(caught.value.faults) == 1


def test_all_faults_at_once() -> None:
    first: dict[str, tuple[Any, str]] = {}
    for field, value, fault in BAD:
        first.setdefault(field, (value, fault))
    found = faults({field: value for field, (value, _) in first.items()})
    assert sorted(f.split(":")[0] for f in found) == sorted(first)


def test_several_faults_of_one_field() -> None:
    spec = {**LEAST, "experts": {"a": {"levels": 1}, "b": {"levels": [2]}}, "actions": {"x": 1, "y": [0, 1], "z": []}}
    assert [f.split(":")[0] for f in faults(spec)] == ["experts.a.levels", "experts.b.levels", "actions.x", "actions.z"]


@pytest.mark.parametrize("value", [None, [], "spec", 5, True])
def test_what_is_no_object_is_refused(value: Any) -> None:
    assert len(faults(value)) == 1


def test_an_empty_object_lacks_what_has_no_default() -> None:
    assert [f.split(":")[0] for f in faults({})] == ["session", "experts", "actions"]


HYBRID = {**LEAST, "feedback": "state", "policy": "hybrid"}


def test_all_faults_of_a_pool_at_once() -> None:
    value = {**HYBRID, "pool": ["mean", "expert:nobody", "mode", 5, "mean"], "window": 0}
    members = "experts, mean, median, logistic, robust, recalibrated, hedge, expert:NAME"
    assert faults(value) == (
        "window: expected a whole number of at least 1",
        f"pool: no such member: expert:nobody, mode, 5; there are {members}",
        "pool: named twice: mean",
    )
    assert faults({**HYBRID, "policy": "hedge", "pool": ["mean"]}) == ("pool: belongs to policy 'hybrid', not 'hedge'",)


def test_an_expert_named_like_a_member_is_another() -> None:
    spec = {**HYBRID, "experts": {"mean": {"levels": 2}, "hedge": {"levels": 2}}}
    assert SessionSpec.from_dict({**spec, "pool": ["hedge", "experts"]}).members == (
        "hedge",
        "expert:mean",
        "expert:hedge",
    )
    assert SessionSpec.from_dict({**spec, "pool": ["expert:hedge", "mean"]}).members == ("expert:hedge", "mean")
    every = ("expert:mean", "expert:hedge", "mean", "median", "logistic", "robust", "recalibrated", "hedge")
    assert SessionSpec.from_dict(spec).members == every
    few = SessionSpec.from_dict({**spec, "pool": ["mean"]})
    assert SessionSpec.from_dict(spec).changes_refused(few) == ["pool"]
    assert SessionSpec.from_dict(few.to_dict()) == few


@pytest.mark.parametrize(("policy", "needed"), [("hedge", "state"), ("hybrid", "state"), ("exp3", "payoff")])
def test_a_learner_needs_its_feedback(policy: str, needed: str) -> None:
    assert SessionSpec.from_dict({**LEAST, "policy": policy, "feedback": needed}).policy == policy
    for feedback in {"none", "state", "payoff"} - {needed}:
        (fault,) = faults({**LEAST, "policy": policy, "feedback": feedback})
        assert fault == f'policy: {policy!r} learns from "feedback": "{needed}", not "{feedback}"'
    assert faults({**LEAST, "policy": policy}) == (
        f'policy: {policy!r} learns from "feedback": "{needed}", not "none"',
    )
    assert faults({**LEAST, "policy": policy, "feedback": "all"}) == ("feedback: expected one of none, state, payoff",)


@pytest.mark.parametrize("feedback", ["none", "state", "payoff"])
def test_the_robust_rule_goes_with_every_feedback(feedback: str) -> None:
    assert SessionSpec.from_dict({**LEAST, "policy": "robust", "feedback": feedback}).policy == "robust"


@pytest.mark.parametrize(("feedback", "policy"), [("none", "robust"), ("state", "hybrid"), ("payoff", "exp3")])
def test_defaults(feedback: str, policy: str) -> None:
    spec = SessionSpec.from_dict({**LEAST, "feedback": feedback})
    assert spec == SessionSpec(
        session="paris-rain",
        experts={
            "ecmwf": Alphabet(tuple(k / 10 for k in range(11))),
            "gfs": Alphabet((0, 0.1, 0.25, 0.5, 0.75, 0.9, 1)),
        },
        actions={"stay": (1.0, 0.0), "prepare": (0.0, 3.0)},
        feedback=feedback,  # type: ignore[arg-type]
        policy=policy,  # type: ignore[arg-type]
        gamma="auto",
        epsilon=0.0,
        schedule=Schedule("certified", 0.1),
        solve_limit_s=10.0,
        half_life=None,
        horizon=None,
        seed=0,
        off_level="nearest",
        missing="allow",
        state_deadline="P30D",
        window=100_000,
    )
    assert spec.state_deadline_us == 30 * 86_400 * 10**6


@pytest.mark.parametrize("gamma", ["inf", math.inf])
def test_hard_constraints_by_either_spelling(gamma: Any) -> None:
    spec = SessionSpec.from_dict({**LEAST, "gamma": gamma})
    assert spec.gamma == math.inf
    assert spec.to_dict()["gamma"] == "inf"


def test_limits() -> None:
    def with_sizes(experts: int, actions: int, levels: int = 2) -> dict[str, Any]:
        return {
            "session": "s" * 512,
            "experts": {f"{i:x>128}": {"levels": levels} for i in range(experts)},
            "actions": {f"{i:x>128}": [0, 1] for i in range(actions)},
        }

    spec = SessionSpec.from_dict(with_sizes(MAX_EXPERTS, MAX_ACTIONS, MAX_LEVELS))
    assert (len(spec.experts), len(spec.actions)) == (64, 1000)
    assert len(next(iter(spec.experts.values())).levels) == 1001
    assert [f.split(":")[0] for f in faults(with_sizes(65, 1001))] == ["experts", "actions"]


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
levels = st.one_of(
    st.integers(2, 30),
    st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True).map(lambda z: [k / 1000 for k in z]),
)
payoffs = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).map(list)
optional = {
    "feedback": st.sampled_from(["none", "state", "payoff"]),
    "policy": st.sampled_from(["robust", None]),
    "gamma": st.one_of(st.just("auto"), st.just("inf"), st.floats(1e-6, 1e9)),
    "epsilon": st.floats(0, 1),
    "schedule": st.one_of(
        st.integers(1, 10**6).map(lambda k: {"every": k}),
        st.tuples(st.sampled_from(["growth", "seconds", "certified"]), st.floats(1e-6, 1e6)).map(
            lambda p: {p[0]: p[1]}
        ),
    ),
    "horizon": st.one_of(st.none(), st.integers(1, 2**62)),
    "seed": st.integers(-(2**63) + 1, 2**63 - 1),
    "off_level": st.sampled_from(["nearest", "reject"]),
    "missing": st.sampled_from(["allow", "reject"]),
    "state_deadline": st.sampled_from(["P7D", "PT12H", "P1W", "P1DT2H3M4.5S"]),
    "window": st.integers(1, 10**9),
}
required = {
    "session": names,
    "experts": st.dictionaries(names, levels.map(lambda z: {"levels": z}), min_size=1, max_size=5),
    "actions": st.dictionaries(names, payoffs, min_size=1, max_size=5),
}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.fixed_dictionaries(required, optional=optional), st.booleans())
def test_a_spec_survives_its_own_json(value: dict[str, Any], learns: bool) -> None:
    learner = {"state": "hedge", "payoff": "exp3"}.get(value.get("feedback", "none"))
    if learns and learner:
        value = {**value, "policy": learner}
    spec = SessionSpec.from_dict(value)
    again = SessionSpec.from_dict(spec.to_dict())
    assert again == spec
    assert list(again.experts) == list(spec.experts) == list(value["experts"])
    assert list(again.actions) == list(spec.actions)
    assert again.to_dict() == spec.to_dict()
    assert spec.changes_refused(again) == []


@pytest.mark.parametrize("k", range(10))
def test_a_tie_in_decimals_goes_down(k: int) -> None:
    alphabet = SessionSpec.from_dict(LEAST).experts["ecmwf"]
    assert alphabet.nearest(float(f"0.{k}5")) == k
    assert alphabet.nearest(float(f"0.{k}5") + 1e-8) == k + 1


def test_a_tie_between_uneven_levels_goes_down() -> None:
    gfs = SessionSpec.from_dict(LEAST).experts["gfs"]
    assert [gfs.levels[gfs.nearest(p)] for p in (0.05, 0.175, 0.375, 0.625, 0.825, 0.95)] == [
        0,
        0.1,
        0.25,
        0.5,
        0.75,
        0.9,
    ]


@settings(deadline=None, derandomize=True, max_examples=200)
@given(levels, st.floats(0, 1))
def test_the_nearest_level_is_nearest(given_levels: Any, p: float) -> None:
    alphabet = SessionSpec.from_dict({**LEAST, "experts": {"a": {"levels": given_levels}}}).experts["a"]
    distance = abs(alphabet.levels[alphabet.nearest(p)] - p)
    assert distance <= min(abs(z - p) for z in alphabet.levels) + 2 * ON_LEVEL
    assert all(alphabet.nearest(z) == alphabet.exact(z) == i for i, z in enumerate(alphabet.levels))


def test_levels_are_sorted() -> None:
    assert SessionSpec.from_dict({**LEAST, "experts": {"a": {"levels": [0.7, 0, 0.2]}}}).experts["a"].levels == (
        0,
        0.2,
        0.7,
    )


def test_a_profile_is_in_the_order_of_the_spec() -> None:
    spec = SessionSpec.from_dict(LEAST)
    assert spec.profile({"gfs": 0.3, "ecmwf": 0.65}) == (6, 2)
    assert spec.profile({"gfs": 0.3}) == spec.profile({"gfs": 0.3, "ecmwf": None}) == (SILENT, 2)
    assert spec.profile({}) == (SILENT, SILENT)
    assert spec.reports((SILENT, 2)) == {"ecmwf": None, "gfs": 0.25}
    assert spec.index((None, 0.25)) == (SILENT, 2)


def test_an_unknown_expert_is_refused() -> None:
    spec = SessionSpec.from_dict(LEAST)
    for forecasts in ({"gfs": 0.3, "icon": 0.2}, {"icon": None}, {1: 0.5, "icon": 0.2}):
        with pytest.raises(EventError, match="icon") as caught:
            spec.profile(forecasts)  # type: ignore[arg-type]
        assert caught.value.reason == "unknown_expert"


def test_off_level_reports_are_refused_on_demand() -> None:
    spec = SessionSpec.from_dict({**LEAST, "off_level": "reject"})
    assert spec.profile({"ecmwf": 0.3, "gfs": 0.25}) == (3, 2)
    assert spec.profile({"ecmwf": 0.1 + 0.2, "gfs": None}) == (3, SILENT)
    with pytest.raises(EventError, match=r"0\.65 is no level of expert 'ecmwf'") as caught:
        spec.profile({"ecmwf": 0.65, "gfs": 0.25})
    assert caught.value.reason == "off_level"


@pytest.mark.parametrize("forecasts", [{"ecmwf": 0.3}, {"ecmwf": 0.3, "gfs": None}, {}])
def test_missing_reports_are_refused_on_demand(forecasts: dict[str, float | None]) -> None:
    spec = SessionSpec.from_dict({**LEAST, "missing": "reject"})
    with pytest.raises(EventError, match="gave no forecast") as caught:
        spec.profile(forecasts)
    assert caught.value.reason == "missing_expert"


def test_what_a_running_session_may_change() -> None:
    spec = SessionSpec.from_dict(LEAST)
    free: dict[str, Any] = {"gamma": 2.0, "epsilon": 0.1, "schedule": Schedule("every", 3), "horizon": 50}
    assert spec.changes_refused(replace(spec, **free)) == []
    learner = replace(spec, feedback="state", policy="hedge")  # its bound is that of one rate
    assert learner.changes_refused(replace(learner, **free)) == ["horizon"]
    fixed: dict[str, Any] = {
        "session": "other",
        "experts": {"ecmwf": spec.experts["ecmwf"]},
        "actions": {"stay": (1.0, 0.0)},
        "feedback": "state",
        "seed": 1,
        "off_level": "reject",
        "missing": "reject",
        "state_deadline": "P1D",
        "window": 5,
    }
    assert spec.changes_refused(replace(spec, **free, **fixed)) == list(fixed)
    for name, value in fixed.items():
        assert spec.changes_refused(replace(spec, **{name: value})) == [name]


def test_the_order_of_experts_cannot_change() -> None:
    spec = SessionSpec.from_dict(LEAST)
    turned = replace(spec, experts=dict(reversed(list(spec.experts.items()))))
    assert turned == spec
    assert spec.changes_refused(turned) == ["experts"]


def test_the_order_of_actions_cannot_change() -> None:
    spec = SessionSpec.from_dict(LEAST)
    assert spec.changes_refused(replace(spec, actions=dict(reversed(list(spec.actions.items()))))) == ["actions"]
