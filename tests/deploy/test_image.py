"""The container image: what is in it, that it is the same whenever it is built, and that it can do without a system."""

import json
import os
import re
import shutil
import stat
import subprocess

import pytest
from conftest import ROOT, TOOLS, build_image, command

from cluster.image import Image
from cluster.network import Namespace
from cluster.servers import PASSWORD, Postgres

MOST_BYTES = 25 * 1024 * 1024


def test_two_builds_are_the_same_to_the_digest(binary, image, tmp_path):
    again = Image(build_image(binary, tmp_path), tmp_path / "root")
    assert again.digest == image.digest


def test_it_is_small_even_without_the_last_optimisations(image):
    # The release build has link-time optimisation on top, and is smaller.
    assert image.size < MOST_BYTES, image.size
    print(f"{image.size / 2**20:.1f} MiB, {image.compressed / 2**20:.1f} MiB to transfer")


def test_there_is_nothing_in_it_but_the_binary_and_the_roots(image):
    files = {str(path.relative_to(image.root)) for path in image.root.rglob("*") if not path.is_dir()}
    assert files == {"usr/bin/fencegate", "etc/ssl/certs/ca-certificates.crt"}
    modes = {path.stat().st_mode & 0o7777 for path in image.root.rglob("*") if path.is_file()}
    assert modes == {0o555, 0o444}


def test_the_roots_are_certificates(image):
    text = (image.root / "etc/ssl/certs/ca-certificates.crt").read_text()
    assert text.count("BEGIN CERTIFICATE") > 50


def test_it_runs_as_nobody_in_particular_and_says_what_it_is(image):
    config = image.config
    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/usr/bin/fencegate"] and config["Cmd"] == ["serve"]
    assert set(config["ExposedPorts"]) == {"8080/tcp", "8081/tcp", "9090/tcp"}
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.title"] == "fencegate"


def test_the_binary_needs_no_library_and_names_no_place_of_its_build(image):
    binary = image.root / "usr/bin/fencegate"
    assert "INTERP" not in command("readelf", "--program-headers", binary)
    text = binary.read_bytes()
    for place in (str(ROOT), command("sh", "-c", "echo ${CARGO_HOME:-$HOME/.cargo}").strip()):
        assert place.encode() not in text, place


def test_it_runs_without_any_other_file(image):
    done = subprocess.run(["chroot", "--userspec=65532:65532", image.root, "/usr/bin/fencegate", "--version"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("fencegate "), done.stderr


@pytest.fixture
def far_server(place):
    """A PostgreSQL that speaks TLS, in a network of its own, with a certificate of an authority that nobody knows."""
    namespace = Namespace(f"fg{os.getpid() % 100000}-tls", "127.0.0.1")
    try:
        postgres = Postgres(namespace, place / "postgres")
        try:
            new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-days", "2")
            authority, authority_key = place / "authority", place / "authority.key"
            command(*new, "-subj", "/CN=authority", "-keyout", authority_key, "-out", authority)
            key, certificate = place / "postgres/key", place / "postgres/certificate"
            command(*new, "-subj", "/CN=server", "-addext", "basicConstraints=critical,CA:FALSE", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-CA", authority, "-CAkey", authority_key, "-keyout", key, "-out",
                    certificate)
            shutil.chown(key, "postgres")
            for name, value in (("ssl_key_file", key), ("ssl_cert_file", certificate), ("ssl", "on")):
                postgres.sql(f"ALTER SYSTEM SET {name} = '{value}'")
            postgres.sql("SELECT pg_reload_conf()")
            yield namespace, authority.read_text()
        finally:
            postgres.stop()
    finally:
        namespace.delete()


def test_servers_are_checked_against_the_roots_in_the_image(image, far_server, tmp_path):
    namespace, authority = far_server
    root = tmp_path / "root"
    shutil.copytree(image.root, root)
    # Which every runtime provides.
    (root / "dev").mkdir()
    for name, minor in (("random", 8), ("urandom", 9)):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        os.chmod(root / "dev" / name, 0o666)
    url = f"postgres://fencegate:{PASSWORD.replace(' ', '%20')}@127.0.0.1:5432/fencegate?sslmode=verify-full"
    migrate = ["ip", "netns", "exec", namespace.name, "chroot", "--userspec=65532:65532", root, "/usr/bin/fencegate",
               "migrate", "--store", url, "--upstream", "http://127.0.0.1:9000"]
    settings = {"FENCEGATE_COORDINATOR__URL": "etcd://127.0.0.1", "PATH": os.environ["PATH"]}
    done = subprocess.run(migrate, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 69 and "certificate" in done.stderr, done.stderr
    roots = root / "etc/ssl/certs/ca-certificates.crt"
    roots.chmod(0o644)
    roots.write_text(roots.read_text() + authority)
    done = subprocess.run(migrate, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_containerfile_is_well_written():
    command(TOOLS / "python/bin/hadolint", ROOT / "deploy/image/Containerfile")


def test_docker_builds_it_from_the_same_containerfile(binary, image, docker):
    tag = command(ROOT / "deploy/image/build.sh", "--binary", binary, "--builder", "docker", env=docker).split()[-1]
    said = command("docker", "run", "--rm", "--read-only", "--network=none", "--cap-drop=ALL", tag, "--version",
                   env=docker)
    assert said.startswith("fencegate ")
    config = json.loads(command("docker", "image", "inspect", tag, env=docker))[0]["Config"]
    for key in ("User", "Entrypoint", "Cmd", "ExposedPorts"):
        assert config[key] == image.config[key], key
    # buildah adds its own.
    assert config["Labels"].items() <= image.config["Labels"].items()
