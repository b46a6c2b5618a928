"""The container image: what is in it, that it is the same whenever it is built, and that it can do without a system."""

import re
import subprocess

from conftest import ROOT, TOOLS, build_image, command

from cluster.image import Image

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


def test_the_containerfile_is_well_written():
    command(TOOLS / "python/bin/hadolint", ROOT / "deploy/image/Containerfile")
