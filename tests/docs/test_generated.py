"""What is written from the code is what the code says now, and true of real records."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import orjson
import pytest

import stream_agg
from stream_agg.cli import cli
from stream_agg.errors import InputError
from stream_agg.events import Action, Forecast, Regret, RuleRecord, State
from stream_agg.schemas import Name, schema
from stream_agg.session.engine import Session
from stream_agg.spec import SessionSpec
from stream_agg.watch.names import METRICS
from stream_agg.worker.settings import PREFIX, Settings
from stream_agg.worker.wire import Applied, Encoder, Place

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
RECORDS: dict[type, Name] = {Action: "action", Regret: "regret", RuleRecord: "rule"}
ROLES: dict[str, Name] = {
    "sessions": "session", "forecasts": "forecast", "states": "state",
    "actions": "action", "regret": "regret", "rules": "rule",
}  # fmt: skip
SPECS: list[dict[str, Any]] = [
    {},
    {"schedule": {"every": 1}, "gamma": "inf", "epsilon": 0.4, "half_life": 5},
    {"feedback": "state", "policy": "hedge", "horizon": 100},
    {"feedback": "state", "epsilon": "auto", "schedule": {"growth": 0.5}},
]
BASE: dict[str, Any] = {
    "session": "s",
    "experts": {"a": {"levels": 5}, "b": {"levels": [0.2, 0.8]}},
    "actions": {"stay": [1, 0], "go": [0, 3]},
}


def outputs(changes: dict[str, Any]) -> Iterator[Any]:
    """Everything a session puts out over 200 rounds, a few with their state, and its end."""
    session = Session(SessionSpec.from_dict({**BASE, **changes}))
    for i in range(200):
        reports = {"a": i % 5 / 4, "b": None if i % 7 == 0 else (0.2, 0.8)[i % 2]}
        yield from session.forecast(Forecast("s", f"e{i}", i * 1_000_000, reports))
        if session.spec.feedback == "state" and i % 2:
            yield from session.state(State("s", f"e{i}", i * 1_000_000 + 1, i % 3 % 2))[1]
    yield session.close()


def strict(found: dict[str, Any]) -> dict[str, Any]:
    """The schema with no room for a field it does not name."""
    closed = {k: strict(v) if isinstance(v, dict) else v for k, v in found.items()}
    if "anyOf" in closed:
        closed["anyOf"] = [strict(one) for one in closed["anyOf"]]
    return {**closed, "additionalProperties": False} if closed.get("properties") and "required" in closed else closed


def test_everything_that_is_generated_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, ""), f"run `python docs/generate`: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("changes", SPECS, ids=str)
def test_every_record_that_a_session_puts_out_keeps_to_its_schema(changes: dict[str, Any]) -> None:
    seen = set()
    for output in outputs(changes):
        jsonschema.validate(orjson.loads(orjson.dumps(output)), strict(schema(RECORDS[type(output)])))
        seen.add(type(output))
    assert seen == set(RECORDS)


FORECAST = {"session": "s", "event": "e", "time": "2026-11-01T00:00:00Z", "forecasts": {"a": 0.5, "b": None}}
STATE = {"session": "s", "event": "e", "time": "2026-11-01T00:00:00Z", "state": 1}
INPUTS: list[tuple[Name, Any]] = [
    ("forecast", FORECAST),
    ("forecast", {**FORECAST, "forecasts": {}}),
    ("forecast", {**FORECAST, "more": 1}),
    ("forecast", {**FORECAST, "forecasts": {"a": 1.5}}),
    ("forecast", {**FORECAST, "forecasts": {"a": "0.5"}}),
    ("forecast", {**FORECAST, "forecasts": [0.5]}),
    ("forecast", {**FORECAST, "event": ""}),
    ("forecast", {**FORECAST, "event": "e" * 513}),
    ("forecast", {k: v for k, v in FORECAST.items() if k != "time"}),
    ("forecast", [FORECAST]),
    ("state", STATE),
    ("state", {**STATE, "state": 2}),
    ("state", {**STATE, "state": None}),
    ("state", {**STATE, "payoff": 1.0}),
    ("state", {**STATE, "state": None, "payoff": -2}),
    ("state", {k: v for k, v in STATE.items() if k != "state"} | {"payoff": 2e9}),
    ("session", BASE),
    ("session", {**BASE, "policy": "best"}),
    ("session", {**BASE, "experts": {}}),
    ("session", {**BASE, "experts": {"a": {"levels": 1}}}),
    ("session", {**BASE, "experts": {"a": {"levels": [0.5, 1.5]}}}),
    ("session", {**BASE, "experts": {f"e{i}": {"levels": 3} for i in range(65)}}),
    ("session", {**BASE, "actions": {"go": [1]}}),
    ("session", {**BASE, "gamma": 0}),
    ("session", {**BASE, "gamma": "inf"}),
    ("session", {**BASE, "epsilon": 1.1}),
    ("session", {**BASE, "schedule": {"every": 1.5}}),
    ("session", {**BASE, "schedule": {"every": 1, "growth": 2}}),
    ("session", {**BASE, "schedule": {"certified": 0.2}}),
    ("session", {**BASE, "half_life": 0}),
    ("session", {**BASE, "state_deadline": "a day"}),
    ("session", {**BASE, "windw": 5}),
]


@pytest.mark.parametrize(("name", "record"), INPUTS)
def test_the_schemas_of_inputs_say_what_the_parsers_say(name: Name, record: Any) -> None:
    parse = {"forecast": Forecast.from_record, "state": State.from_record, "session": SessionSpec.from_dict}[name]
    try:
        parse(record)
        taken = True
    except InputError:
        taken = False
    assert jsonschema.Draft202012Validator(schema(name)).is_valid(record) == taken


def test_every_field_of_a_spec_has_its_schema_and_default() -> None:
    plain = SessionSpec.from_dict(BASE).to_dict()
    found = schema("session")["properties"]
    assert list(found) == [f.name for f in dataclasses.fields(SessionSpec)]
    assert {k: v["default"] for k, v in found.items() if "default" in v} == {
        k: plain[k] for k in plain if k not in BASE
    }


def test_asyncapi_names_the_topics_and_headers_that_are_used() -> None:
    document = json.loads((ROOT / "docs" / "asyncapi.json").read_text())
    settings = Settings()
    topics = {getattr(settings, f.name) for f in dataclasses.fields(Settings) if f.name.startswith("topic_")}
    assert {channel["address"] for channel in document["channels"].values()} == topics
    for name in get_args(Name):
        assert document["components"]["schemas"][name]["properties"] == schema(name)["properties"]
    encoder, messages = Encoder(settings), document["components"]["messages"]
    rows = [encoder.row(output, Applied(0, 0, 0)) for output in outputs({})]
    dead = encoder.dead_letter(Place("forecasts", 0, 0, 0, b"s", b"{"), InputError("bad_json", "x"))
    for row in [*rows, dead]:
        named = messages[encoder.role(row.topic)]["headers"]["properties"]
        assert {header for header, _ in row.headers} == set(named) - {"truncated"}


def test_asyncapi_keeps_to_its_own_schema(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here: the schema of AsyncAPI comes as the npm package @asyncapi/specs")
    done = subprocess.run([npm, "pack", "@asyncapi/specs@6.11.1"], cwd=tmp_path, capture_output=True, timeout=120)
    if done.returncode:
        pytest.skip("the npm package @asyncapi/specs cannot be had")
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        archive.extract("package/schemas/3.0.0-without-$id.json", tmp_path, filter="data")
    rules = json.loads((tmp_path / "package" / "schemas" / "3.0.0-without-$id.json").read_text())
    document = json.loads((ROOT / "docs" / "asyncapi.json").read_text())
    jsonschema.Draft7Validator(rules).validate(document)
    assert not jsonschema.Draft7Validator(rules).is_valid({**document, "channels": {"a": {"adress": "b"}}})


def test_the_reference_names_every_setting_metric_and_option() -> None:
    pages = {page.stem: page.read_text() for page in REFERENCE.glob("*.md")}
    rows = {name: [line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")]
            for name, text in pages.items()}  # fmt: skip
    assert rows["settings"] == [PREFIX + f.name.upper() for f in dataclasses.fields(Settings)]
    assert rows["metrics"] == [metric.name for metric in METRICS]
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert f"## {name}\n" in pages["cli"]
        for option in command.params:
            if not getattr(option, "hidden", False):
                assert all(flag in pages["cli"] for flag in option.opts if flag.startswith("-"))


def test_the_reference_names_every_field_of_the_topics_and_no_other() -> None:
    text = (REFERENCE / "topics.md").read_text()
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    messages = json.loads((ROOT / "docs" / "asyncapi.json").read_text())["components"]["messages"]
    assert set(sections) == {getattr(Settings(), f"topic_{role}") for role in messages}
    for role, message in messages.items():
        named = re.findall(r"^\| `([\w-]+)` \|", sections[getattr(Settings(), f"topic_{role}")], re.MULTILINE)
        fields = list(schema(ROLES[role])["properties"]) if role in ROLES else []
        assert named == [*fields, *message.get("headers", {}).get("properties", {})]


def test_the_reference_names_all_of_the_python_half() -> None:
    page = (REFERENCE / "api.md").read_text()
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == set(stream_agg.__all__)
    members = re.findall(r"^### (\w+)\.(\w+)$", page, re.MULTILINE)
    assert {"decide", "learn", "report", "to_bytes", "from_bytes"} <= {
        name for cls, name in members if cls == "Session"
    }
    assert all(hasattr(getattr(stream_agg, cls), name) for cls, name in members)
