#!/usr/bin/env bash
# Builds the static binary that goes into the image, and prints where it is.
# usage: deploy/image/binary.sh [PROFILE]      (default: release)
#
# Static glibc, since the image has nothing else in it: names are resolved through /etc/hosts and
# /etc/resolv.conf, which glibc does by itself without its plug-ins. The same source gives the same bytes
# wherever it lies: paths are mapped away and nothing is left of debug information.
set -euo pipefail
cd "$(dirname "$0")/../.."

profile=${1:-release}
target=$(rustc --version --verbose | sed -n 's/^host: //p')
case $target in
*-linux-gnu) ;;
*) echo "the image is built on Linux with glibc, not on $target" >&2 && exit 1 ;;
esac
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}

# With --target, these are for what runs in the image alone, not for build scripts.
export RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols --remap-path-prefix=$CARGO_TARGET_DIR=/target \
--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/fencegate"
export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$CARGO_TARGET_DIR=/target"
cargo build --locked --profile "$profile" --target "$target" --bin fencegate >&2
echo "$CARGO_TARGET_DIR/$target/$profile/fencegate"
