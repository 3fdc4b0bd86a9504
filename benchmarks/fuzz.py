"""Everything that reads bytes from outside, given bytes that nobody meant: `python benchmarks/fuzz.py --seconds 3600`.

Four doors: records, specs, the bytes of a session's state, files of forecasts. Each may say no, by the error it is
documented to raise, and within seconds; anything else is a fault: it is kept in `corpus/`, which every run of the tests
goes through, and the exit code is 1. `--door` takes one alone. The last line says, as JSON, how many inputs each door
got, how many it let in, the slowest of them and how much memory grew after the first tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from stream_agg.errors import ConfigError, InputError
from stream_agg.events import Forecast, State
from stream_agg.replay.source import Source
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.worker.batch import read
from stream_agg.worker.bounds import DEFAULT
from stream_agg.worker.wire import Place

CORPUS = Path(__file__).parent / "corpus"
SLOW_S = 5
"""How long one input may take before it counts as a hang: a thousand times what they take."""

SPEC = {
    "session": "rain",
    "experts": {"a": {"levels": 3}, "b": {"levels": [0, 0.5, 1]}},
    "actions": {"stay": [1, 0], "prepare": [0, 3]},
    "feedback": "state",
    "policy": "hedge",
    "schedule": {"every": 1},
}
EVENT = {"session": "rain", "event": "e", "time": "2026-01-01T00:00:00Z"}
FILE = b"event_id,time,outcome,a,b\nx,2026-01-01,1,0.5,\ny,2026-01-02,,0.1,1\n"


def _state() -> bytes:
    session = Session(SessionSpec.from_dict(SPEC))
    for k in range(3):
        session.decide(f"e{k}", {"a": 0.5, "b": None}, f"2026-01-0{k + 1}T00:00:00Z")
    session.learn("e0", 1, "2026-01-04T00:00:00Z")
    session.learn("early", 1, "2026-01-04T00:00:00Z")
    return session.to_bytes()


def _record(value: bytes) -> bool:
    found = [read(Place("t", 0, 0, 0, b"", value), kind.from_record).event for kind in (Forecast, State)]
    return not all(isinstance(event, InputError) for event in found)


def _spec(value: bytes) -> bool:
    try:
        spec = DEFAULT.spec(value)
    except InputError:
        return False
    if SessionSpec.from_dict(orjson.loads(orjson.dumps(spec.to_dict()))) != spec:
        raise AssertionError("a spec that is written down is another one")
    if len(spec.actions) * sum(len(alphabet.levels) for alphabet in spec.experts.values()) < 200:
        _lived(Session(spec))
    return True


def _lived(session: Session) -> None:
    """A forecast and a state of it; what is left can be stored, and comes back."""
    try:
        session.decide("e", dict.fromkeys(session.spec.experts, 0.5), EVENT["time"])
        session.learn("e", 1, EVENT["time"])
    except InputError:  # of a spec that is strict about one of them
        pass
    packed = session.to_bytes()
    if Session.from_bytes(packed).to_bytes() != packed:
        raise AssertionError("a session that is stored is another one")


def _session(value: bytes) -> bool:
    try:
        Session.from_bytes(value)
    except (KeyError, ValueError):
        return False
    return True


def _file(value: bytes) -> bool:
    with tempfile.NamedTemporaryFile(dir=_SCRATCH, suffix=".csv" if len(value) % 2 else ".data") as file:
        file.write(value)
        file.flush()
        try:
            source = Source(file.name)
            return sum(1 for _ in source.rows()) + source.count() + len(source.experts) > 0
        except (ConfigError, InputError):
            return False


_SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: PTH112, S108 # memory, not a disk

DOORS: dict[str, tuple[Callable[[bytes], bool], list[bytes]]] = {
    "record": (
        _record,
        [
            orjson.dumps({**EVENT, **more})
            for more in ({"forecasts": {"a": 0.5, "b": None}}, {"state": 1}, {"payoff": 2.5})
        ],
    ),
    "spec": (_spec, [orjson.dumps(SPEC)]),
    "state": (_session, [_state()]),
    "file": (_file, [FILE, orjson.dumps({"event_id": "x", "time": "2026-01-01", "outcome": 1, "forecasts": {"a": 0}})]),
}

WORDS = [b"null", b"true", b"[]", b"{}", b"1e308", b"1e400", b"-0", b"NaN", b'""', b'"\\ud800"', b"9" * 30, b"\xff",
         b"\x00", b"\xef\xbb\xbf", b"\x1f\x8b", b"[" * 600, b'{"a":' * 300, b"," * 40, b'"' , b"\n",
         b"2026-02-30T25:00:00Z", b"P9999999999D", b"1" * 400, "é".encode(), b'"\\u0000"', b"\\"]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """A valid input with a few parts cut out, doubled, overwritten or put in between."""
    value = draw(st.sampled_from(whole))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(value)))
        end = min(len(value), start + draw(st.integers(0, 12)))
        part = draw(st.one_of(st.sampled_from(WORDS), st.binary(max_size=8), st.just(value[start:end] * 3)))
        value = value[:start] + part + value[end:]
    return value


@st.composite
def reshaped(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """A valid input in JSON with one value, however deep, put in the place of another."""
    value = draw(st.sampled_from([v for v in whole if v.startswith(b"{")]))
    parts = list(_places(json.loads(value)))
    path = draw(st.sampled_from(parts))
    odd = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), _JSON)
    return json.dumps(_put(json.loads(value), path, draw(odd))).encode("utf-8", "surrogatepass")


_JSON = st.recursive(
    st.none() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ()):
        yield from _places(inner, (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value[path[0]] = _put(value[path[0]], path[1:], new)
    return value


def corpus(door: str) -> list[bytes]:
    """Valid inputs, and what once broke it."""
    return DOORS[door][1] + [path.read_bytes() for path in sorted((CORPUS / door).glob("*"))]


def inputs(door: str) -> st.SearchStrategy[bytes]:
    """What a door is given."""
    whole = corpus(door)
    kinds = [damaged(whole), st.binary(max_size=200)]
    return st.one_of(*kinds, reshaped(whole)) if door != "file" else st.one_of(*kinds)


@dataclass
class Tally:
    """What came of one door."""

    inputs: int = 0
    let_in: int = 0
    slowest_ms: float = 0.0


@contextmanager
def in_time() -> Iterator[None]:
    """`TimeoutError` in the middle of whatever hangs."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SLOW_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, SLOW_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def enter(door: str, value: bytes, tally: Tally) -> None:
    """Give a door one input; raises what it should not have raised."""
    started = time.process_time()
    with in_time():
        tally.let_in += DOORS[door][0](value)
    tally.inputs += 1
    tally.slowest_ms = max(tally.slowest_ms, 1000 * (time.process_time() - started))


@contextmanager
def kept(door: str, last: list[bytes]) -> Iterator[None]:
    """Keep the input that was under way when something went wrong."""
    try:
        yield
    except BaseException as e:
        path = CORPUS / door / sha256(last[0]).hexdigest()[:12]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(last[0])
        print(f"{door}: {type(e).__name__}: {str(e)[:200]}: kept {path}", file=sys.stderr)
        raise


def shaped(door: str, number: int, count: int, tally: Tally) -> None:
    """Give a door inputs of a shape, by hypothesis, which makes the one that breaks it as small as it can."""
    last = [b""]

    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs(door))
    def run(value: bytes) -> None:
        last[0] = value
        enter(door, value, tally)

    with kept(door, last):
        run()


def flurry(door: str, number: int, count: int, tally: Tally) -> None:
    """Give a door damaged inputs as fast as it takes them: a hundred times as many."""
    rng = random.Random(number)
    whole = corpus(door)
    last = [b""]
    with kept(door, last):
        for _ in range(count):
            value = rng.choice(whole)
            for _ in range(rng.randrange(1, 5)):
                start = rng.randrange(len(value) + 1)
                end = start + rng.choice((0, 0, 1, 2, rng.randrange(40)))
                other = rng.choice(whole)
                at = rng.randrange(len(other) + 1)
                part = rng.choice((rng.choice(WORDS), rng.randbytes(rng.randrange(4)), value[start:end] * 2, b"",
                                   other[at : at + rng.randrange(40)], b"%d" % rng.randrange(-2, 300)))  # fmt: skip
                value = value[:start] + part + value[end:]
            last[0] = value
            enter(door, value, tally)


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--door", choices=list(DOORS))
    asked = parser.parse_args()
    doors, started, number = [asked.door] if asked.door else list(DOORS), time.monotonic(), asked.seed
    tallies, memory = {door: Tally() for door in doors}, []
    while time.monotonic() - started < asked.seconds:
        for door in doors:
            shaped(door, number, 100, tallies[door])
            flurry(door, number, 10_000, tallies[door])
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        number += 1
    told = {
        door: {"inputs": t.inputs, "let_in": t.let_in, "slowest_ms": round(t.slowest_ms, 1)}
        for door, t in tallies.items()
    }
    early = memory[len(memory) // 10]
    summary = {"seconds": round(time.monotonic() - started), "seed": asked.seed, "doors": told}
    print(
        json.dumps(
            {**summary, "memory_mb": round(memory[-1] / 1024), "grown_mb": round((memory[-1] - early) / 1024, 1)}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
