"""The kustomize overlays: that they are the chart's, and that they build and fit the schemas."""

import os

import pytest
import yaml
from conftest import KUBECTL, ROOT, TOOLS, command, documents, helm_template
from test_chart import check_operator_kinds, validate

KUSTOMIZE = ROOT / "deploy/kustomize"
OVERLAYS = {"shared": 7, "sidecar": 5, "sidecar-postgres": 5}
KUBECTLS = [TOOLS / helm / "kubectl/kubectl" for helm in ("helm3", "helm4")]
HEAD = "# From the chart. After a change there: UPDATE_GOLDEN=1 tests/deploy/run.sh -k kustomize\n"


def chart(tmp_path, **values):
    file = tmp_path / "values.yaml"
    # The configuration comes from the overlay.
    file.write_text(yaml.safe_dump({
        "config": (KUSTOMIZE / "overlays/shared/fencegate.toml").read_text(),
        "secrets": {"database": "fencegate-database"}, "access": {"secret": "fencegate-access"},
        "migration": {"hook": False},
        "networkPolicy": {"api": {"podLabels": {"app": "ledger"}}},
        "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, **values}))
    rendered = documents(helm_template("--values", file))
    for document in rendered:
        # The name of the generated ConfigMap says it.
        if document["kind"] == "Deployment":
            document["spec"]["template"]["metadata"].pop("annotations")
    return {(document["kind"], document["metadata"]["name"]): document for document in rendered}


PARTS = {
    "base/gateways.yaml": [("NetworkPolicy", "fencegate"), ("PodDisruptionBudget", "fencegate")],
    "overlays/shared/gateways.yaml": [("Deployment", "fencegate"), ("Service", "fencegate"),
                                      ("Job", "fencegate-migrate"), ("NetworkPolicy", "fencegate-api")],
    "components/monitoring/monitoring.yaml": [("PodMonitor", "fencegate"), ("PrometheusRule", "fencegate")],
}


def test_the_parts_are_the_chart_s(tmp_path):
    rendered = chart(tmp_path)
    for name, keys in PARTS.items():
        text = HEAD + yaml.safe_dump_all([rendered[key] for key in keys], sort_keys=False, width=110)
        if os.environ.get("UPDATE_GOLDEN"):
            (KUSTOMIZE / name).write_text(text)
        assert text == (KUSTOMIZE / name).read_text(), name
    rest = set(rendered) - {key for keys in PARTS.values() for key in keys}
    assert rest == {("ConfigMap", "fencegate")}, "the overlay makes it"


def test_the_sidecar_s_container_is_the_chart_s(tmp_path):
    expected = chart(tmp_path)["Deployment", "fencegate"]["spec"]["template"]["spec"]
    pod = yaml.safe_load((KUSTOMIZE / "overlays/sidecar/gateway.yaml").read_text())["spec"]["template"]["spec"]
    container = next(container for container in pod["containers"] if container["name"] == "fencegate")
    wanted = expected["containers"][0]
    for key in ("name", "imagePullPolicy", "args", "ports", "startupProbe", "livenessProbe", "readinessProbe",
                "resources"):
        assert container[key] == wanted[key], key
    assert wanted["image"].startswith(container["image"] + ":")
    # Whatever the API's pod says of itself.
    for_the_pod = {key: value for key, value in expected["securityContext"].items() if key != "fsGroup"}
    assert container["securityContext"] == {**wanted["securityContext"], **for_the_pod}
    for part, parts in (("volumeMounts", container["volumeMounts"]), ("volumes", pod["volumes"])):
        access, = (one for one in (wanted if part == "volumeMounts" else expected)[part] if one["name"] == "access")
        assert access in parts, part
    environment = [variable for variable in wanted["env"] if variable["name"] != "FENCEGATE_STORE__MIGRATE"]
    assert container["env"] == environment
    assert pod["terminationGracePeriodSeconds"] == expected["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_builds_alike_everywhere_and_fits_the_schemas(name):
    overlay = KUSTOMIZE / "overlays" / name
    old, new = (documents(command(kubectl, "kustomize", overlay)) for kubectl in KUBECTLS)
    assert old == new
    # The API's preStop sleeps without a shell, from 1.30 on.
    for version in ["1.31", "1.33", "1.35", "1.37"] + (["1.27", "1.29"] if name == "shared" else []):
        assert validate(new, version) == OVERLAYS[name]


def test_there_are_these_overlays():
    assert {path.name for path in (KUSTOMIZE / "overlays").iterdir()} == set(OVERLAYS)


def test_the_monitoring_component_adds_rules_scrapes_and_all_dashboards(tmp_path):
    links = {name: os.path.relpath(KUSTOMIZE / name, tmp_path.resolve())
             for name in ("overlays/shared", "components/monitoring")}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(
        {"resources": [links["overlays/shared"]], "components": [links["components/monitoring"]]}))
    rendered = documents(command(KUBECTL, "kustomize", tmp_path))
    check_operator_kinds([document for document in rendered if document["kind"] in ("PodMonitor", "PrometheusRule")])
    dashboards = [document for document in rendered if document["kind"] == "ConfigMap"
                  and "grafana_dashboard" in document["metadata"].get("labels", {})]
    files = {path.name: path.read_text() for path in (ROOT / "dashboards").glob("*.json")}
    assert {key.removeprefix("fencegate-"): text for document in dashboards
            for key, text in document["data"].items()} == files
    assert validate(rendered_core(rendered), "1.37") == OVERLAYS["shared"] + len(files)


def rendered_core(rendered):
    return [document for document in rendered if not document["apiVersion"].startswith("monitoring.")]
