"""On the cluster of KUBECONFIG: installs the chart into a namespace of its own, uses it, upgrades it and removes it.

FENCEGATE_IMAGE names the image, with its tag, as the cluster's nodes can pull it. FENCEGATE_POSTGRES_IMAGE is the
database's, for example a copy of postgres:17. Without KUBECONFIG this file is not among the tests.
"""

import json
import os
import subprocess
import time
import urllib.request

import pytest
import yaml
from conftest import CASES, CHART, HELMS, KUBECTL, command

from cluster.access import Credentials

NAMESPACE = "fencegate-test"
PASSWORD = "for the length of a test"
DATABASE = {"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "postgres", "labels": {"app": "postgres"}}, "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 999, "fsGroup": 999,
                            "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "run", "emptyDir": {}}],
        "containers": [{
            "name": "postgres", "image": os.environ.get("FENCEGATE_POSTGRES_IMAGE", "postgres:17"),
            "env": [{"name": "POSTGRES_USER", "value": "fencegate"}, {"name": "POSTGRES_PASSWORD", "value": PASSWORD},
                    {"name": "PGDATA", "value": "/data/pg"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "run", "mountPath": "/var/run/postgresql"}],
            "readinessProbe": {"exec": {"command": ["pg_isready", "-h", "127.0.0.1"]}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "postgres"},
     "spec": {"selector": {"app": "postgres"}, "ports": [{"port": 5432}]}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fencegate-database"},
     "stringData": {"password": PASSWORD}},
]}


def kubectl(*words, stdin=None):
    return command(KUBECTL, "--namespace", NAMESPACE, *words, stdin=stdin)


@pytest.fixture
def values(tmp_path):
    values = yaml.safe_load((CASES / "shared.yaml").read_text())
    values["config"] = values["config"].replace(
        'url = "etcd://etcd:2379"', 'url = "postgres://fencegate@postgres:5432/fencegate"\n'
        'password_file = "/run/fencegate/database/password"')
    repository, tag = os.environ["FENCEGATE_IMAGE"].rsplit(":", 1)
    values["image"] = {"repository": repository, "tag": tag}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.fixture
def access(binary):
    return Credentials(binary)


@pytest.fixture
def namespace(access):
    command(KUBECTL, "create", "namespace", NAMESPACE)
    try:
        command(KUBECTL, "label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        kubectl("apply", "-f", "-", stdin=json.dumps(DATABASE))
        for name, content in access.secret().items():
            kubectl("apply", "-f", "-", stdin=json.dumps(
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": content}))
        kubectl("wait", "--for=condition=Ready", "pod/postgres", "--timeout=180s")
        yield
    finally:
        command(KUBECTL, "delete", "namespace", NAMESPACE, "--timeout=180s")


def test_the_chart_installs_serves_upgrades_and_goes(namespace, access, values):
    helm = (HELMS["helm4"], "--namespace", NAMESPACE)
    command(*helm, "install", "fencegate", CHART, "--values", values, "--wait", "--timeout", "5m")
    kubectl("rollout", "status", "deployment/fencegate", "--timeout=60s")
    assert acquire("job:1", access)["token"] == "1"
    command(*helm, "upgrade", "fencegate", CHART, "--values", values, "--set", "shutdown.grace=20", "--wait",
            "--timeout", "5m")
    kubectl("rollout", "status", "deployment/fencegate", "--timeout=180s")
    # The lease is still there.
    assert acquire("job:2", access)["token"] == "2"
    command(*helm, "uninstall", "fencegate", "--wait", "--timeout", "5m")
    assert not kubectl("get", "deployment,job,networkpolicy,configmap", "-l", "app.kubernetes.io/name=fencegate",
                       "-o", "name").split()


def acquire(resource, access):
    """Takes a lease at a gateway, by way of the API server."""
    forward = subprocess.Popen([KUBECTL, "--namespace", NAMESPACE, "port-forward", "service/fencegate", ":8081"],
                               stdout=subprocess.PIPE, text=True)
    try:
        port = forward.stdout.readline().split(" -> ")[0].rsplit(":", 1)[1]
        body = json.dumps({"owner": "test", "ttl_ms": 60000}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/leases/{resource.replace(':', '%3A')}", body,
                                         access.bearer())
        deadline = time.monotonic() + 30
        while True:
            try:
                return json.load(urllib.request.urlopen(request, timeout=10))
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.5)
    finally:
        forward.terminate()
        forward.wait()
