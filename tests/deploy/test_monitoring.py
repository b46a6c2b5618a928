"""The chart's rules and dashboards are those of dashboards/, and every alert leads somewhere."""

import re

import yaml
from conftest import CASES, ROOT, documents, helm_template

DASHBOARDS = ROOT / "dashboards"


def rendered(kind):
    return [document for document in documents(helm_template("--values", CASES / "everything.yaml"))
            if document["kind"] == kind]


def test_the_rules_are_all_rules():
    rule, = rendered("PrometheusRule")
    files = sorted((DASHBOARDS / "rules").glob("*.yaml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    assert groups and rule["spec"]["groups"] == groups


def test_every_alert_has_a_runbook_and_a_test():
    rule, = rendered("PrometheusRule")
    alerts = [entry for group in rule["spec"]["groups"] for entry in group["rules"] if "alert" in entry]
    assert len(alerts) >= 9
    tests = "\n".join(file.read_text() for file in (DASHBOARDS / "rules/tests").glob("*.yaml"))
    for alert in alerts:
        kebab = re.sub(r"(?<!^)(?=[A-Z])", "-", alert["alert"]).lower()
        assert alert["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{kebab}.md"), alert["alert"]
        assert (ROOT / f"docs/runbooks/{kebab}.md").is_file(), kebab
        assert re.search(rf"alertname:\s*{alert['alert']}\b", tests), f"{alert['alert']} has no test"


def test_the_dashboards_are_all_dashboards():
    rendered_ones = {key.removeprefix("fencegate-"): text for document in rendered("ConfigMap")
                     if "grafana_dashboard" in document["metadata"]["labels"]
                     for key, text in document["data"].items()}
    files = {file.name: file.read_text() for file in DASHBOARDS.glob("*.json")}
    assert len(files) >= 2 and set(rendered_ones) == set(files)
    for name, text in files.items():
        assert rendered_ones[name].rstrip("\n") == text.rstrip("\n"), name
        # What one ConfigMap has room for.
        assert len(text.encode()) < 900_000
