"""docs/installing.md: its values render, its configuration is taken, and what its commands name is there."""

import base64
import os
import re
import subprocess
import tomllib

import yaml
from conftest import HELMS, KUBECTL, ROOT, command, documents, helm_template
from test_meaning import check_config, config_text, environment, gateway_of, workload

PAGE = (ROOT / "docs/installing.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_values_of_the_page_install_gateways_that_take_their_configuration(binary, tmp_path):
    text, = blocks("yaml")
    (tmp_path / "values.yaml").write_text(text)
    for helm in HELMS:
        rendered = documents(helm_template("--values", tmp_path / "values.yaml", helm=helm))
        pod = workload(rendered)["spec"]["template"]["spec"]
        assert tomllib.loads(config_text(rendered, pod)) == tomllib.loads(yaml.safe_load(text)["config"])
        check_config(binary, config_text(rendered, pod), environment(gateway_of(workload(rendered))), tmp_path)


def test_what_the_page_s_commands_name_is_there():
    commands = "\n".join(blocks("sh"))
    named = set(re.findall(r"\b(?:deploy|tests/deploy)/[\w./-]*\w", commands))
    assert len(named) >= 6
    for path in named:
        assert (ROOT / path).exists(), path
    # Names of tests stand as run.sh takes them.
    for test in re.findall(r"\btest_\w+\.py", commands):
        assert (ROOT / "tests/deploy" / test).exists(), test
    for script in re.findall(r"deploy/image/\w+\.sh", commands):
        command("bash", "-n", ROOT / script)


# What would reach a cluster is printed instead.
TOOLS = """
fencegate() { "$BINARY" "$@"; }
kubectl() { if [ "$1" = replace ]; then cat; else "$KUBECTL" "$@" --dry-run=client -o yaml; echo ---; fi; }
"""


def test_the_credentials_of_the_page_are_what_gateways_and_prometheus_take(binary, tmp_path):
    (tmp_path / "password").write_text("secret")
    lines = [line for block in blocks("sh") for line in block.splitlines() if " credential new " in line
             or " create secret " in line]
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", TOOLS + "\n".join(lines)], cwd=tmp_path, check=True,
                          capture_output=True, text=True, env={**os.environ, "BINARY": binary, "KUBECTL": KUBECTL})
    secrets = {secret["metadata"]["name"]: {key: base64.b64decode(text).decode()
                                            for key, text in secret["data"].items()}
               for secret in documents(done.stdout)}
    assert set(secrets) == {"fencegate-access", "fencegate-database", "prometheus-token"}
    assert secrets["prometheus-token"]["token"] == (tmp_path / "prometheus.token").read_text().strip()
    known, = secrets["fencegate-access"].items()
    assert known == ("credentials.toml", (tmp_path / "credentials.toml").read_text())
    names = [credential["name"] for credential in tomllib.loads(known[1])["credential"]]
    assert names == ["invoices", "on-call", "prometheus"]
    config = ROOT / "deploy/kustomize/overlays/sidecar/fencegate.toml"
    command(binary, "config", "check", "--config", config, env={
        "FENCEGATE_LISTEN__LEASES": "0.0.0.0:8081",
        "FENCEGATE_ACCESS__CREDENTIALS": str(tmp_path / "credentials.toml")})
