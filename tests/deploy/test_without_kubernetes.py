"""The systemd unit and the compose file."""

import json
import os
import re
import subprocess

import pytest
import yaml
from conftest import ROOT, command
from test_meaning import check_config

from cluster.access import Credentials
from cluster.servers import wait_until

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


# Run by systemd beside the unit; what it prints is what the test looks at.
CHECK = """
exec >/check/said 2>&1
for _ in $(seq 100); do curl -sf http://127.0.0.1:9090/readyz && break; sleep 0.1; done
lease() { curl -sS http://127.0.0.1:8081/v1/leases/%2Fx -d '{"owner":"a","ttl_ms":5000}' "$@"; echo; }
lease
lease -H @/check/field
curl -sS -X PUT -H 'Fencing-Token: 1' http://127.0.0.1:8080/x; echo
pid=$(systemctl show fencegate --property=MainPID --value)
grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp|Uid):' /proc/$pid/status
ls /var/lib/fencegate/
systemctl stop fencegate
systemctl show fencegate --property=Result,ExecMainStatus,ActiveState
"""

CHECK_UNIT = """
[Unit]
Wants=fencegate.service
After=fencegate.service
[Service]
Type=oneshot
ExecStart=/bin/bash /check/check.sh
ExecStopPost=/bin/systemctl --no-block exit
"""

ROUTES = """
[[upstream]]
name = "nobody"
url = "http://127.0.0.1:9"
[[route]]
name = "all"
path = "/{*rest}"
"""

# As where workers are elsewhere.
CONFIG = """
[listen]
leases = "0.0.0.0:8081"
[access]
credentials = "/etc/fencegate/credentials.toml"
""" + ROUTES


@pytest.fixture
def machine(tmp_path):
    """This machine's files under a layer that is thrown away, for a systemd of its own."""
    layer = tmp_path / "layer"
    layer.mkdir()
    command("mount", "-t", "tmpfs", "tmpfs", layer)
    root = layer / "root"
    try:
        for name in ("upper", "work", "root"):
            (layer / name).mkdir()
        command("mount", "-t", "overlay", "overlay", "-o",
                f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work", root)
        try:
            yield root
        finally:
            command("umount", root)
    finally:
        command("umount", layer)


def test_the_unit_really_runs_confined_and_stops_in_good_order(binary, machine, tmp_path):
    check = tmp_path / "check"
    check.mkdir()
    access = Credentials(binary)
    field = "\n".join(": ".join(field) for field in access.bearer().items())
    for name, text in (("check.sh", CHECK), ("check.service", CHECK_UNIT), ("fencegate.toml", CONFIG),
                       ("credentials.toml", access.file), ("field", field)):
        (check / name).write_text(text)
    places = {binary: "/usr/local/bin/fencegate", check / "fencegate.toml": "/etc/fencegate/fencegate.toml",
              check / "credentials.toml": "/etc/fencegate/credentials.toml",
              UNIT: "/etc/systemd/system/fencegate.service",
              check / "check.service": "/etc/systemd/system/check.service"}
    subprocess.run(["systemd-nspawn", "--register=no", "--keep-unit", "--quiet", f"--directory={machine}",
                    "--machine=fencegate-test", "--private-network", f"--bind={check}:/check",
                    *(f"--bind-ro={source}:{at}" for source, at in places.items()),
                    "--boot", "--", "--unit=check.service"],
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    said = (check / "said").read_text()
    assert said.startswith("ready\n"), said
    stranger, worker = said.splitlines()[1:3]
    assert json.loads(stranger)["code"] == "unauthenticated" and json.loads(worker)["token"] == "1"
    assert '"code":"upstream_unreachable"' in said and '"outcome":"not_forwarded"' in said
    status = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    assert status["CapBnd"] == status["CapEff"] == "0" * 16
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["Uid"].split()[0]) > 60000
    assert "fencegate.db" in said
    assert {"Result=success", "ExecMainStatus=0", "ActiveState=inactive"} <= set(said.splitlines())


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


@pytest.fixture
def composed(binary, docker, tmp_path):
    """The gateway of the compose file in a container, after the commands in the file's head. Answers its directory
    and a function that runs docker-compose. Without a network, so with SQLite and without the others."""
    command(ROOT / "deploy/image/build.sh", "--binary", binary, "--builder", "docker", env=docker)
    effective = effective_compose(tmp_path)
    gateway = effective["services"]["fencegate"]
    for key in ("depends_on", "networks", "ports", "secrets"):
        del gateway[key]
    gateway |= {"network_mode": "none", "tmpfs": ["/var/lib/fencegate:uid=65532"]}
    gateway["environment"]["FENCEGATE_STORE__URL"] = "sqlite:/var/lib/fencegate/fencegate.db"
    (tmp_path / "fencegate.toml").write_text(ROUTES)
    file = tmp_path / "alone.yml"
    file.write_text(yaml.safe_dump({"version": effective["version"], "services": {"fencegate": gateway}}))
    subprocess.run(["bash", "-euc", head_commands()], cwd=tmp_path, env={**os.environ, **docker}, check=True)

    def compose(*words, stdin=None):
        return command("docker-compose", "--project-name", "fencegate-test", "--file", file, *words, stdin=stdin,
                       env=docker)
    compose("up", "--detach")
    try:
        yield tmp_path, compose
    finally:
        compose("down")


def head_commands():
    """Those that the head of the compose file shows, but for the image's, the password's and the start."""
    head = re.findall(r"^#   (.*)$", (COMPOSE / "docker-compose.yml").read_text(), re.MULTILINE)
    first = head.index("mkdir -p access")
    assert head[-1] == "docker-compose up"
    return "\n".join(head[first:-1])


def test_the_composed_gateway_knows_whom_its_head_makes_known(composed):
    place, compose = composed
    in_gateway = ("exec", "-T", "fencegate", "fencegate")

    def raise_mark(number, stdin):
        return compose(*in_gateway, "fence", "raise", "--resource", "account:7", "--token", number,
                       "--token-file", "/dev/stdin", stdin=stdin)
    wait_until("the gateway listens", lambda: "listening" in compose("logs", "fencegate"))
    operator = (place / "operator.token").read_text()
    raise_mark("7", operator)
    assert "account:7" in compose(*in_gateway, "fence", "list", "--token-file", "/dev/stdin", stdin=operator)
    with pytest.raises(AssertionError, match="may not admin.raise"):
        raise_mark("8", (place / "worker.token").read_text())
    # Another file takes the place of what the gateway has open.
    (place / "later").write_text((place / "access/credentials.toml").read_text().replace('"worker"', '"later"'))
    (place / "later").replace(place / "access/credentials.toml")
    wait_until("the change is followed", lambda: "a changed file was taken over" in compose("logs", "fencegate"))
