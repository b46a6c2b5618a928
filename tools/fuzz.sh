#!/usr/bin/env bash
# Fuzzes each target for SECONDS (default 20), from fuzz/seeds and what earlier runs found. A finding ends it, and is kept in
# target/fuzz/. It does with a stable toolchain what `cargo fuzz run` does with a nightly one, but for the address sanitizer,
# of which code without `unsafe` has no need.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-20}
host=$(rustc -vV | sed -n 's/^host: //p')

flags=(--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
# With --target, so that build scripts and macros are built without them.
RUSTFLAGS="${flags[*]}" cargo build --quiet --locked --release --manifest-path fuzz/Cargo.toml \
    --target "$host" --target-dir target/fuzz

for target in target framing; do
    corpus=target/fuzz/corpus/$target
    mkdir -p "$corpus"
    "target/fuzz/$host/release/$target" "$corpus" "fuzz/seeds/$target" -dict=fuzz/http.dict -max_len=1024 \
        -max_total_time="$seconds" -artifact_prefix="target/fuzz/$target-" -print_final_stats=1 -verbosity=0
done
