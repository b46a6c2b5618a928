"""What the tests of deploy/ share: the tools, what they render, and a built image."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[2]
TOOLS = ROOT / "target" / "deploy"
CHART = ROOT / "deploy" / "helm" / "fencegate"
HELMS = {"helm3": TOOLS / "helm3/helm/helm", "helm4": TOOLS / "helm4/helm/helm"}
KUBECTL = TOOLS / "helm4/kubectl/kubectl"
CASES = pathlib.Path(__file__).parent / "cases"

# Not one that is passed over: there is such a test only where there is a cluster.
collect_ignore = [] if os.environ.get("KUBECONFIG") else ["test_real_cluster.py"]

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def command(*words, stdin=None, env=None):
    """Runs a program that has to succeed, and answers its output."""
    done = subprocess.run([str(word) for word in words], input=stdin, capture_output=True, text=True, check=False,
                          env={**os.environ, **(env or {})})
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]


def helm_template(*arguments, helm="helm4", name="fencegate", namespace="money"):
    return command(HELMS[helm], "template", name, CHART, "--namespace", namespace, *arguments)


@pytest.fixture(scope="session")
def binary():
    """The static binary, which `tests/deploy/run.sh` has built."""
    return pathlib.Path(os.environ["STATIC_BINARY"]).resolve()


@pytest.fixture(scope="session")
def image(binary, tmp_path_factory):
    """The image, built from it."""
    from cluster.image import Image
    place = tmp_path_factory.mktemp("image")
    return Image(build_image(binary, place), place / "root")


@pytest.fixture(scope="module")
def place():
    """A directory that other users than the test's can get into."""
    with tempfile.TemporaryDirectory(prefix="fencegate-deploy-") as directory:
        os.chmod(directory, 0o755)
        yield pathlib.Path(directory)


def build_image(binary, place):
    """Builds the image in a storage of its own, and answers where its OCI layout is."""
    buildah = f"buildah --root {place}/storage --runroot {place}/run"
    tag = command(ROOT / "deploy/image/build.sh", "--binary", binary, "--builder", buildah,
                  env={"SOURCE_DATE_EPOCH": "1700000000"}).splitlines()[-1]
    layout = place / "layout"
    command(*buildah.split(), "push", "--quiet", tag, f"oci:{layout}")
    return layout


@pytest.fixture
def docker(tmp_path):
    """Docker with a daemon and a storage of its own, and without a network. Answers its environment."""
    from cluster.servers import wait_until
    (tmp_path / "log").touch()
    socket = f"unix://{tmp_path}/socket"
    places = [f"--{name}={tmp_path}/{name}" for name in ("data-root", "exec-root", "pidfile")]
    with open(tmp_path / "log", "wb") as log:
        daemon = subprocess.Popen(
            ["dockerd", f"--host={socket}", *places, "--bridge=none", "--iptables=false", "--ip6tables=false"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    environment = {"DOCKER_HOST": socket, "DOCKER_BUILDKIT": "0"}
    try:
        wait_until("docker answers", lambda: subprocess.run(
            ["docker", "version"], env={**os.environ, **environment}, capture_output=True, check=False).returncode == 0)
        yield environment
    finally:
        daemon.terminate()
        daemon.wait(timeout=60)
