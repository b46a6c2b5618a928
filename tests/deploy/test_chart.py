"""The chart: lint, golden renders, schemas, and that each of its values does something."""

import copy
import functools
import json
import os
import subprocess
import tempfile

import kubernetes_validate
import pytest
import yaml
from conftest import CASES, CHART, HELMS, ROOT, TOOLS, command, documents, helm_template

NAMES = sorted(case.stem for case in CASES.glob("*.yaml") if not case.stem.endswith(".golden"))
VERSIONS = ["1.27", "1.29", "1.31", "1.33", "1.35", "1.37"]
OPERATOR = "monitoring.coreos.com/v1"


def test_there_are_cases():
    assert NAMES == ["everything", "shared"]


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("name", NAMES)
def test_lint_finds_nothing(helm, name):
    command(HELMS[helm], "lint", "--strict", CHART, "--values", CASES / f"{name}.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_both_helms_render_what_was_reviewed(name):
    """After a change that is meant: UPDATE_GOLDEN=1 tests/deploy/run.sh -k reviewed"""
    arguments = ["--values", CASES / f"{name}.yaml"]
    three, four = (documents(helm_template(*arguments, helm=helm)) for helm in HELMS)
    assert by_name(three) == by_name(four)
    golden = CASES / f"{name}.golden.yaml"
    rendered = yaml.safe_dump_all(without_foreign_text(four), sort_keys=False, width=110)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def by_name(rendered):
    return sorted(((document["kind"], document["metadata"]["name"], document) for document in rendered),
                  key=lambda entry: entry[:2])


def without_foreign_text(rendered):
    """Rules and dashboards are reviewed where they are written, and looked at in test_monitoring.py."""
    for document in copy.deepcopy(rendered):
        if document["kind"] == "PrometheusRule":
            document["spec"]["groups"] = []
        if "grafana_dashboard" not in document["metadata"]["labels"]:
            yield document


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_rendered_fits_the_schemas_of_kubernetes(name, version):
    rendered = documents(helm_template("--values", CASES / f"{name}.yaml"))
    assert validate(rendered, version) >= {"shared": 8, "everything": 10}[name]


def validate(rendered, version):
    """Checks the documents of Kubernetes' own kinds strictly, and answers how many those are."""
    own = [document for document in rendered if document["apiVersion"] != OPERATOR]
    for document in own:
        assert kubernetes_validate.validate(document, version, strict=True) == version
    return len(own)


def test_the_schema_check_would_find_a_mistake():
    rendered = documents(helm_template("--values", CASES / "shared.yaml"))
    deployment = next(document for document in rendered if document["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate([deployment], VERSIONS[0])


def test_what_is_rendered_fits_the_schemas_of_the_prometheus_operator():
    rendered = documents(helm_template("--values", CASES / "everything.yaml"))
    operators = [document for document in rendered if document["apiVersion"] == OPERATOR]
    assert sorted(document["kind"] for document in operators) == ["PodMonitor", "PrometheusRule"]
    check_operator_kinds(operators)
    for broken in (("PodMonitor", "podMetricsEndpoint", []), ("PrometheusRule", "groups", [{"name": 3}])):
        kind, key, value = broken
        wrong = copy.deepcopy(next(document for document in operators if document["kind"] == kind))
        wrong["spec"][key] = value
        with pytest.raises(AssertionError):
            check_operator_kinds([wrong])


def check_operator_kinds(wanted):
    script = ROOT / "tests/deploy/operator.mjs"
    link = TOOLS / "npm/operator.mjs"
    link.write_text(script.read_text())  # It finds its modules beside itself.
    said = command("node", link, stdin=json.dumps(wanted))
    assert said.split() == [document["kind"] for document in wanted]


BASE = yaml.safe_load((CASES / "everything.yaml").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    else:
        yield path


def test_the_schema_knows_just_the_values_that_there_are():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def properties(part):
        return {key: properties(below) for key, below in part.get("properties", {}).items()}

    def shape(part, known):
        # Below a mapping of free keys the schema names none.
        return {key: shape(below, known[key]) if isinstance(below, dict) and known.get(key) else {}
                for key, below in part.items()}

    known = properties(schema)
    known.pop("global")  # Helm's own, for charts within charts.
    # What may stand below these is Kubernetes' to say.
    known["resources"] = {}
    assert shape(DEFAULTS, known) == known

    def closed(part, path=""):
        if "properties" in part:
            assert part["additionalProperties"] is False, path
        for key, below in part.get("properties", {}).items():
            closed(below, f"{path}.{key}")
    closed(schema)


def test_the_full_case_changes_every_default():
    for path in {tuple(path) for path in leaves(DEFAULTS)}:
        default, changed = at(DEFAULTS, path), at(BASE, path)
        switched_on = path[-1] == "enabled" and default is True
        assert switched_on or default != changed, path


def at(values, path):
    for key in path:
        values = values[key]
    return values


# Each but these is taken away from the full case, so that its default holds, and must show.
HIDDEN = {
    ("image", "tag"): {"image": {**BASE["image"], "digest": ""}},
    ("replicas",): {"autoscaling": {**BASE["autoscaling"], "enabled": False}},
    ("podMonitor", "tokenSecret"): {"access": {**BASE["access"], "metrics": "open"}},
}
# There is no default that could hold.
REQUIRED = {("config",): BASE["config"] + "# changed\n", ("access", "secret"): "another"}


@pytest.mark.parametrize("path", sorted(set(map(tuple, leaves(DEFAULTS)))), ids=".".join)
def test_every_value_is_used(path):
    base = {**copy.deepcopy(BASE), **HIDDEN.get(path, {})}
    changed = copy.deepcopy(base)
    parent = at(changed, path[:-1])
    default = REQUIRED.get(path, at(DEFAULTS, path))
    parent[path[-1]] = (not parent[path[-1]]) if isinstance(default, bool) else default
    assert render(yaml.safe_dump(base)) != render(yaml.safe_dump(changed))


@functools.cache
def render(values):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        return helm_template("--values", file.name)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize(("setting", "complaint"), [
    ("replica=4", "replica"),
    ("image.registry=x", "registry"),
    ("replicas=0", "replicas"),
    ("config=", "config is empty"),
    ("config=[store]", "store.url has to be postgres://"),
    ("listen.proxy=80", "proxy"),
    ("secrets.Not_A_Name=x", "Not_A_Name"),
    ("secrets.access=x", "access"),
    ("access.secret=", "access.secret is empty"),
    ("access.metrics=anybody", "metrics"),
    ("access.metrics=credential,podMonitor.enabled=true", "podMonitor.tokenSecret is empty"),
    ("image.digest=latest", "digest"),
])
def test_mistakes_are_refused_with_their_name(helm, setting, complaint):
    done = subprocess.run([HELMS[helm], "template", "fencegate", CHART, "--values", CASES / "shared.yaml",
                           "--set", setting], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and complaint in done.stderr, done.stderr


def test_a_packaged_chart_has_rules_and_dashboards_in_it(tmp_path):
    """They are links in the repository."""
    for name, helm in HELMS.items():
        place = tmp_path / name
        command(helm, "package", CHART, "--destination", place)
        archive, = place.glob("*.tgz")
        rendered = command(helm, "template", "fencegate", archive, "--values", CASES / "everything.yaml")
        assert by_name(documents(rendered)) == by_name(documents(command(
            helm, "template", "fencegate", CHART, "--values", CASES / "everything.yaml")))
        # Helm keeps the whole chart in a Secret, which has room for 1 MiB.
        assert archive.stat().st_size < 300_000
