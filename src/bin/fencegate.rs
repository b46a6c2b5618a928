//! The `fencegate` command; all of it is in [`fencegate::cli`].

/// Each request lets go of two read buffers of 8 KiB and takes two anew, which glibc's allocator
/// serves on its slow path.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    fencegate::cli::main()
}
