//! A file system of the test's own, to be filled or made read-only.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A small tmpfs, unmounted when dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounting is for root alone; the tests run as root in CI.
    pub fn mount(size: &str) -> SmallDisk {
        let disk = SmallDisk(tempfile::tempdir().expect("a temporary directory"));
        disk.run("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        disk
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn make_read_only(&self) {
        self.run("mount", &["-o", "remount,ro"]);
    }

    /// Leaves not a byte.
    pub fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("an inode is free");
        for size in [65_536, 4096, 512, 1] {
            while filler.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    pub fn make_room(&self) {
        fs::remove_file(self.filler()).expect("it was filled");
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    fn run(&self, program: &str, args: &[&str]) {
        let status = Command::new(program).args(args).arg(self.path()).status();
        let is_done = status.is_ok_and(|status| status.success());
        assert!(is_done, "`{program}` failed: this test mounts a file system, run it as root");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
