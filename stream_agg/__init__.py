"""Robust decisions from many calibrated forecasts: the offline half of stream_agg, no broker needed."""

from stream_agg.errors import ConfigError, EventError, InfeasibleError, SpecError, StreamAggError
from stream_agg.events import Action, Regret
from stream_agg.rule.benchmarks import Benchmarks, benchmarks, posterior_range
from stream_agg.rule.rule import Rule
from stream_agg.rule.solver import solve
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Benchmarks",
    "ConfigError",
    "EventError",
    "InfeasibleError",
    "Regret",
    "Rule",
    "Session",
    "SessionSpec",
    "SpecError",
    "StreamAggError",
    "benchmarks",
    "posterior_range",
    "solve",
]
