//! The `fencegate` command; all of it is in [`fencegate::cli`].

fn main() -> std::process::ExitCode {
    fencegate::cli::main()
}
