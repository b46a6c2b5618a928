"""The systemd unit and the compose file."""

import json
import re
import subprocess

import pytest
import yaml
from conftest import ROOT, command
from test_meaning import check_config

UNIT = ROOT / "deploy/systemd/fencegate.service"
COMPOSE = ROOT / "deploy/compose"


@pytest.fixture
def unit(binary, tmp_path):
    """The unit with the binary where it is here."""
    file = tmp_path / "fencegate.service"
    file.write_text(UNIT.read_text().replace("/usr/local/bin/fencegate", str(binary)))
    return file


def test_systemd_finds_nothing_wrong_with_the_unit(unit):
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_finds_the_unit_well_confined(unit):
    # In tenths; 2 is "OK", and whoever takes a line of the confinement out comes beyond it.
    command("systemd-analyze", "security", "--offline=true", "--threshold=15", unit)


def test_the_unit_leaves_time_for_the_drain():
    limit = int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)[1])
    assert limit > 30 + 20


def effective_compose(tmp_path):
    """What docker-compose makes of the file, which it checks against its schema."""
    for file in ("docker-compose.yml", "fencegate.toml"):
        (tmp_path / file).write_text((COMPOSE / file).read_text())
    (tmp_path / "database-password").write_text("secret")
    return yaml.safe_load(command("docker-compose", "--file", tmp_path / "docker-compose.yml", "config"))


def test_the_compose_file_lets_only_the_gateway_to_the_api(tmp_path):
    effective = effective_compose(tmp_path)
    services, networks = effective["services"], effective["networks"]
    assert set(services) == {"fencegate", "postgres", "ledger"}
    for closed in ("inside", "store"):
        assert networks[closed]["internal"] is True
    members = {network: {name for name, service in services.items() if network in service["networks"]}
               for network in networks}
    assert members == {"inside": {"fencegate", "ledger"}, "store": {"fencegate", "postgres"}, "outside": {"fencegate"}}
    assert not services["ledger"].get("ports") and not services["postgres"].get("ports")
    gateway = services["fencegate"]
    assert gateway["read_only"] and gateway["cap_drop"] == ["ALL"] and gateway["user"] == "65532:65532"
    assert "secret" not in json.dumps(effective).replace("database-password", "").replace("/run/secrets", "") \
        .replace("secrets", "")


def test_the_gateway_takes_the_configuration_of_the_compose_file(binary, tmp_path):
    gateway = effective_compose(tmp_path)["services"]["fencegate"]
    check_config(binary, (COMPOSE / "fencegate.toml").read_text(), gateway["environment"], tmp_path)


def test_the_images_of_the_compose_file_and_the_chart_are_the_same(tmp_path):
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert effective_compose(tmp_path)["services"]["fencegate"]["image"] == f"fencegate:{version}"
