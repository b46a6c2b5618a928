#!/usr/bin/env bash
# Checks everything: format, lints, all tests, documentation, licences of dependencies.
# Installs what that needs and this machine lacks. Needs Rust (rustup), a C toolchain and, for a few
# tests that mount file systems and change users, root.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }

packages=()
command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || packages+=(nginx-light)
command -v curl >/dev/null || packages+=(curl)
command -v c++ >/dev/null || packages+=(g++)
command -v h2load >/dev/null || packages+=(nghttp2-client)
command -v openssl >/dev/null || packages+=(openssl)
command -v setpriv >/dev/null || packages+=(util-linux)
command -v mount >/dev/null || packages+=(mount)
command -v strace >/dev/null || packages+=(strace)
[ -x /usr/lib/postgresql/15/bin/postgres ] || packages+=(postgresql-15)
[ -x /usr/sbin/pgbouncer ] || packages+=(pgbouncer)
command -v etcd >/dev/null || packages+=(etcd-server)
command -v etcdctl >/dev/null || packages+=(etcd-client)
command -v go >/dev/null || packages+=(golang-go)
command -v prometheus >/dev/null || packages+=(prometheus)
[ -d /usr/share/gocode/src/go.etcd.io/etcd/clientv3 ] || packages+=(golang-etcd-server-dev)
# For tests/deploy: the image, pods, their network, and what checks unit and compose file.
command -v buildah >/dev/null || packages+=(buildah)
command -v dockerd >/dev/null || packages+=(docker.io)
command -v runc >/dev/null || packages+=(runc)
[ -x /usr/sbin/nft ] || packages+=(nftables)
command -v ip >/dev/null || packages+=(iproute2)
command -v docker-compose >/dev/null || packages+=(docker-compose)
command -v systemd-analyze >/dev/null || packages+=(systemd)
command -v systemd-nspawn >/dev/null || packages+=(systemd-container)
command -v npm >/dev/null || packages+=(npm)
command -v openssl >/dev/null || packages+=(openssl)
command -v unzip >/dev/null || packages+=(unzip)
[ -s /etc/ssl/certs/ca-certificates.crt ] || packages+=(ca-certificates)
[ -e /usr/share/containers/seccomp.json ] || packages+=(golang-github-containers-common)
command -v javac >/dev/null || packages+=(default-jdk-headless)
command -v node >/dev/null || packages+=(nodejs)
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3 python3-pip)
if [ ${#packages[@]} -gt 0 ]; then
    say "Installing ${packages[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        echo "These Debian packages are missing: ${packages[*]}. Install them, or run this as root." >&2
        exit 1
    fi
    # The tests start their own servers; the packages are not to start any.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
    case " ${packages[*]} " in
    *" etcd-server "*) systemctl disable etcd >/dev/null 2>&1 || true ;;
    esac
    case " ${packages[*]} " in
    *" prometheus "*) systemctl disable prometheus >/dev/null 2>&1 || true ;;
    esac
fi

# What the workers of tests/it/foreign.rs lock with that Debian does not have.
if [ ! -d target/foreign/python/etcd3 ]; then
    python3 -m pip install --quiet --root-user-action=ignore --target target/foreign/python \
        -r tests/it/foreign/requirements.txt
fi

# What tests/watch holds the dashboards against, and draws them with.
if [ ! -d target/watch/python/grafana_foundation_sdk ]; then
    python3 -m pip install --quiet --root-user-action=ignore --target target/watch/python \
        -r tests/watch/requirements.txt
fi

# A strict reader of OpenMetrics, for tests/it/metrics.
if [ ! -d target/foreign/prometheus/prometheus_client ]; then
    python3 -m pip install --quiet --root-user-action=ignore --target target/foreign/prometheus \
        -r tests/it/metrics/requirements.txt
fi

for component in rustfmt clippy; do
    cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
done

say "Format"
cargo fmt --all --check

say "Lints"
cargo clippy --locked --all-targets -- -D warnings

say "Tests"
cargo test --locked

say "Tests of a gateway that is broken on purpose"
cargo test --locked --features broken-drain --test chaos found_out

say "Deployment"
tests/deploy/run.sh -q

say "Fuzzing, for half a minute"
tools/fuzz.sh 15

say "Documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items

say "Dependencies"
deny=target/tools/bin/cargo-deny
if [ ! -x "$deny" ]; then
    cargo install --quiet --locked --root target/tools --version 0.20.2 cargo-deny
fi
"$deny" --log-level error check bans licenses sources

say "All passed"
