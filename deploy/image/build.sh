#!/usr/bin/env bash
# Builds the container image from a static binary that is built here as well.
# usage: deploy/image/build.sh [--binary FILE] [--tag NAME] [--builder "buildah …"|docker]
#
# Nothing is fetched but crates. The same source and the same certificates give the same image, to the digest,
# whenever buildah builds it (docker dates it by itself). SOURCE_DATE_EPOCH is the date it shows (default: the
# commit's).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
binary='' tag=fencegate:$version builder=''
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$2 ;;
    --tag) tag=$2 ;;
    --builder) builder=$2 ;;
    *) echo "unknown option $1; there are --binary, --tag and --builder" >&2 && exit 64 ;;
    esac
    shift 2
done
if [ -z "$builder" ]; then
    builder=$(command -v buildah || command -v docker) || {
        echo "neither buildah nor docker is installed (Debian: apt-get install buildah)" >&2
        exit 69
    }
fi
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
roots=/etc/ssl/certs/ca-certificates.crt
[ -s "$roots" ] || { echo "$roots is missing (Debian: apt-get install ca-certificates)" >&2 && exit 69; }
[ -n "$binary" ] || binary=$("$here/binary.sh")

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
install -m 444 "$here/Containerfile" "$roots" "$context/"
install -m 555 "$binary" "$context/fencegate"
touch --date="@$epoch" "$context"/*
arguments=(--build-arg "VERSION=$version" --tag "$tag" --file "$context/Containerfile")
case $builder in
*docker*) $builder build "${arguments[@]}" "$context" ;;
*) $builder build --timestamp "$epoch" --network none --pull-never "${arguments[@]}" "$context" ;;
esac
echo "$tag"
