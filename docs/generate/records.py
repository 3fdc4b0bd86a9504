"""The JSON Schemas of all records: outputs from their classes, inputs from theirs and the limits of their parsers."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

from describe import Schema, schema_of

from stream_agg.events import ID_LENGTH, LARGEST_PAYOFF, Action, Forecast, Regret, RuleRecord, State
from stream_agg.spec import MAX_ACTIONS, MAX_EXPERTS, MAX_LEVELS, NAME_LENGTH, POOL, Schedule, SessionSpec

TEXTS = {
    "session": "Session id; the record's key as well.",
    "event": "Event id, unique in its session.",
    "time": "RFC 3339, in UTC: of the event the record came from, never of a clock.",
}
"""What a field says where its class says nothing."""
_OF = {
    "Action.round": "Number of the decision in its session, from 1.",
    "Action.profile": "expert -> the level its forecast was taken for; null: silent.",
    "Action.action": "The action to take, drawn from `strategy` by seed, session and event.",
    "Action.strategy": "action -> probability.",
    "Action.policy": "The policy that decided.",
    "Action.rule": "The rule that decided, and how far from optimal it can be.",
    "RuleStamp.version": "Number of the rule; 0 before the first solve.",
    "RuleStamp.round": "Rounds its proof is about.",
    "RuleStamp.gap": "No rule is better by more, per round; null without a finite proof, and for learners.",
    "RuleRecord.version": "Number of the rule.",
    "RuleRecord.round": "Rounds it was solved on.",
    "RuleRecord.duals": "expert -> level, as text -> price.",
    "RuleRecord.value": "What the rule guarantees, per round, `penalty` included.",
    "RuleRecord.upper_bound": "What no rule exceeds, per round.",
    "RuleRecord.gap": "`upper_bound` - `value`.",
    "RuleRecord.penalty": "The part of `value` that is no payoff: the price of calibration that cannot hold.",
    "RuleRecord.exact": "Whether the penalty leaves the hard constraints as they are.",
    "RuleRecord.epsilon": "Calibration error that the rule allows.",
    "Regret.round": "Decisions so far.",
    "Regret.reason": "What the report follows: a solve, states, or the session's end.",
    "Regret.robust": "Against the best rule of the worst case; needs no state.",
    "Regret.realized": "What came back in the rounds whose state is known.",
    "Regret.calibration": "expert -> how calibrated it was.",
    "Regret.open": "Decisions whose state is not known.",
    "Regret.counts": "How many states and forecasts were duplicate, late, in conflict, ...",
    "RobustPart.round": "Rounds it is about.",
    "RobustPart.value": "The best worst case of any rule, per round.",
    "RobustPart.worst_case": "The worst case of what was played, per round.",
    "RobustPart.regret": "The difference, summed over the rounds.",
    "RobustPart.bound": "What the theorem allows it to be; null where it is about another policy.",
    "RobustPart.penalty": "The part of `worst_case` that is no payoff.",
    "RobustPart.value_penalty": "The part of `value` that is no payoff.",
    "RobustPart.exact": "Whether the penalty leaves the hard constraints as they are.",
    "RobustPart.gamma": "Price of a violation; null: hard constraints.",
    "RobustPart.epsilon_min": "Smallest calibration error that the forecasts allow together.",
    "RealizedPart.states": "Rounds whose state or payoff is known.",
    "RealizedPart.payoff": "Of the actions drawn, summed.",
    "RealizedPart.expected_payoff": "Of the strategies they were drawn from, summed.",
    "RealizedPart.optimal_in_hindsight": "Of the best single rule for calibrated experts, summed.",
    "RealizedPart.contextual": "Of the best action for each profile, summed.",
    "RealizedPart.contextual_regret": "`contextual` - `payoff`.",
    "ExpertCalibration.error": "Mean distance of observed frequency and level.",
    "ExpertCalibration.worst_level": "The level that adds most to it.",
    "ExpertCalibration.n": "Known rounds of the expert.",
    "ExpertCalibration.interval": "95 % interval of the frequency of state 1 at the worst level (Wilson).",
    "ExpertCalibration.levels": "level, as text -> known rounds with state 0 and with state 1.",
    "MemberPart.payoff": "Expected payoff of the member alone, summed over the known rounds.",
    "MemberPart.weight": "Its weight now.",
    "MemberPart.bound": "What its payoff less the session's `expected_payoff` cannot exceed.",
    "DriftPart.round": "Rounds at the latest look.",
    "DriftPart.expert": "The expert whose reports changed most clearly.",
    "DriftPart.p_value": "Corrected for all experts and looks.",
    "DriftPart.distance": "Total variation between its earlier and its later reports.",
    "DriftPart.alarm": "Whether the look raised an alarm.",
    "DriftPart.first_alarm": "Round of the first look that did; null: none.",
}
_DURATION = {"type": "string", "pattern": "^P"}
_TIME = {"type": "string", "format": "date-time"}
_ID = {"type": "string", "minLength": 1, "maxLength": ID_LENGTH}
_LEVELS = {
    "anyOf": [
        {"type": "integer", "minimum": 2, "maximum": MAX_LEVELS},
        {
            "type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1},
            "minItems": 1, "maxItems": MAX_LEVELS,
        },
    ]
}  # fmt: skip
_PAYOFF = {"type": "number", "minimum": -LARGEST_PAYOFF, "maximum": LARGEST_PAYOFF}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_COUNT = {"type": ["integer", "null"], "minimum": 1}
_NAMES = {"minLength": 1, "maxLength": NAME_LENGTH}
_SPEC: dict[str, tuple[str, Schema | None]] = {
    "session": ("Session id; the record's key must be the same.", _ID),
    "experts": (
        "name -> what it may report: `levels` as a list in [0, 1], or a count L for k/(L-1).",
        {
            "type": "object", "minProperties": 1, "maxProperties": MAX_EXPERTS, "propertyNames": _NAMES,
            "additionalProperties": {
                "type": "object", "properties": {"levels": _LEVELS}, "required": ["levels"],
                "additionalProperties": False,
            },
        },
    ),
    "actions": (
        "name -> [payoff in state 0, payoff in state 1].",
        {
            "type": "object", "minProperties": 1, "maxProperties": MAX_ACTIONS, "propertyNames": _NAMES,
            "additionalProperties": {"type": "array", "items": _PAYOFF, "minItems": 2, "maxItems": 2},
        },
    ),
    "feedback": ("What comes back: nothing that is needed, states, or the payoff of the action played.", None),
    "policy": ("Who decides: default `hybrid` where states come back, `exp3` where payoffs do, else `robust`.", None),
    "pool": (
        "The members that `hybrid` learns to follow: " + ", ".join(f"`{m}`" for m in POOL) + " (all of them if null), "
        "or `expert:NAME`.",
        {"type": ["array", "null"], "items": {"type": "string"}, "minItems": 1},
    ),
    "gamma": (
        "Price of a calibration violation; `inf`: hard constraints.",
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}, {"enum": ["auto", "inf"]}]},
    ),
    "epsilon": (
        "Calibration error allowed; `auto`: half as much again as forecasts need; `measured`: what known states show.",
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"enum": ["auto", "measured"]}]},
    ),
    "schedule": (
        "When the rule is solved anew: `every` k events, `growth` of the rounds by a share, `seconds` of event time, "
        "or when its `certified` gap passes a share of U / sqrt(rounds).",
        {
            "type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": False,
            "properties": {
                kind: {"type": "integer", "minimum": 1} if kind == "every" else _POSITIVE
                for kind in get_args(get_type_hints(Schedule)["kind"])
            },
        },
    ),
    "solve_limit_s": ("Nominal seconds after which a solve is given up.", _POSITIVE),
    "half_life": ("Rounds after which all counts are halved; null: never.", _COUNT),
    "horizon": ("Rounds that learners set their rates for.", _COUNT),
    "seed": ("Of the draws.", None),
    "off_level": ("What is done with a report that is no level.", None),
    "missing": ("What is done with a forecast that lacks an expert.", None),
    "state_deadline": ("How long after its forecast a state may come: ISO 8601, weeks to seconds.", _DURATION),
    "window": ("Decisions that are remembered.", {"type": "integer", "minimum": 1}),
}  # fmt: skip


def records() -> dict[str, Schema]:
    """name -> the whole JSON Schema of that record's value."""
    found = {
        "session": _spec(),
        "forecast": _input(
            Forecast,
            forecasts={
                "description": "expert -> probability of state 1, or null where it is silent.",
                "type": "object",
                "additionalProperties": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
            },
        ),
        "state": _input(
            State,
            state={"description": "What happened: 0 or 1.", "enum": [0, 1, None]},
            payoff={
                "description": "Instead, for feedback `payoff`: what the action that was played earned.",
                **_PAYOFF, "type": ["number", "null"],
            },
        ),
        "action": _output(Action),
        "regret": _output(Regret),
        "rule": _output(RuleRecord),
    }  # fmt: skip
    found["state"]["oneOf"] = [
        {"required": [one], "properties": {one: {"not": {"type": "null"}}, other: {"type": "null"}}}
        for one, other in (("state", "payoff"), ("payoff", "state"))
    ]
    return {name: {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **schema}
            for name, schema in found.items()}  # fmt: skip


def _output(cls: type) -> Schema:
    texts = {f"{c.__name__}.{name}": text for c in (Action, Regret, RuleRecord) for name, text in TEXTS.items()}
    schema = schema_of(cls, texts | _OF)
    schema["properties"]["time"]["format"] = "date-time"
    return schema


def _input(cls: type, **own: Schema) -> Schema:
    """Fields of the class; its time is a text in the record."""
    properties: dict[str, Schema] = {}
    for field in dataclasses.fields(cls):
        name = field.name.removesuffix("_us")
        properties[name] = own.get(name) or {"description": TEXTS[name], **(_TIME if name == "time" else _ID)}
    properties["time"]["description"] = "RFC 3339, with any offset: when it was forecast or became known."
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in ("state", "payoff")],
    }


def _spec() -> Schema:
    hints, plain = get_type_hints(SessionSpec), _example().to_dict()
    properties: dict[str, Any] = {}
    needed = []
    for field in dataclasses.fields(SessionSpec):
        text, schema = _SPEC[field.name]
        properties[field.name] = {"description": text, **(schema or schema_of(hints[field.name], {}))}
        if field.default is dataclasses.MISSING:
            needed.append(field.name)
        else:
            properties[field.name]["default"] = plain[field.name]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _example() -> SessionSpec:
    return SessionSpec.from_dict({"session": "s", "experts": {"e": {"levels": 2}}, "actions": {"a": [0, 1]}})
