"""Nothing is decoded into code: no pickle, no eval, no loader that makes objects; and Faust's own are out of reach."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from faust.serializers import codecs

from stream_agg.worker.app import build_app

ROOT = Path(__file__).parent.parent
ALLOWED = {"benchmarks/_faults/bugs.py": "exec"}
"""It puts bugs into our own source, to see that they are found."""
FILES = sorted(path for room in ("stream_agg", "benchmarks", "docs", "deploy") for path in (ROOT / room).rglob("*.py"))

MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jsonpickle", "yaml", "xml"}
CALLS = {"eval", "exec", "compile", "__import__", "allow_pickle", "literal_eval", "unsafe_load", "full_load"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_unsafe_decoder_is_used(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not {name.split(".")[0] for name in names} & MODULES, f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            allowed = ALLOWED.get(path.relative_to(ROOT).as_posix())
            assert node.func.id not in CALLS - {allowed}, f"line {node.lineno}"
        if isinstance(node, ast.keyword):
            assert node.arg not in ("allow_pickle", "shell") or ast.unparse(node.value) == "False", (
                "allow_pickle, shell"
            )


async def test_fausts_codecs_and_web_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(self: object, *_: object) -> None:
        raise AssertionError(f"{self} was used")

    for codec in {type(codec) for codec in codecs.codecs.values()} - {codecs.codecs["raw"].__class__}:
        monkeypatch.setattr(codec, "_loads", reached, raising=False)
    app = build_app(app_id="a", brokers=["127.0.0.1:1"], topics=["t"], handler=None)  # type: ignore[arg-type]
    assert (app.conf.key_serializer, app.conf.value_serializer, app.conf.web_enabled) == ("raw", "raw", False)
    assert not app.boot_strategy.enable_web
    assert not app.tables
    assert not list(app.boot_strategy.web_server())
    (agent,) = app.agents.values()
    topic = agent.channel
    message = type("Message", (), {"key": b"\x80\x04K\x01.", "value": b"\x80\x04K\x01.", "headers": [("a", b"b")]})()
    assert (await topic.decode(message)).value == message.value
