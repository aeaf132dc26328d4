//! The `floodwall` command that stands beside this test in cargo's folder.
//!
//! `cargo test --workspace` has built it by then. Where only this crate's tests were asked for it
//! may be missing or older than its sources: then cargo is asked for it, once. Invariant: no test
//! runs a command that is older than what it was built from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::namespace::skip;

/// Where the command is; `None`, and said so, where it cannot be had.
pub(crate) fn floodwall() -> Option<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match FOUND.get_or_init(find) {
        Ok(path) => Some(path),
        Err(why) => {
            skip(why);
            None
        }
    }
}

fn find() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = own.parent().and_then(Path::parent).ok_or("this test binary has no folder")?;
    let path = folder.join("floodwall");
    if !is_fresh(&path) {
        build(folder)?;
    }
    if path.exists() { Ok(path) } else { Err(format!("there is no {}", path.display())) }
}

/// Whether it is there and nothing that it may be made of is newer. Cargo's own list stands beside
/// it only where the command itself was asked for.
fn is_fresh(path: &Path) -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    changed(path).zip(workspace).is_some_and(|(built, workspace)| {
        ["crates", "lab", "Cargo.lock", "Cargo.toml"]
            .iter()
            .all(|part| newest(&workspace.join(part)).is_some_and(|at| at <= built))
    })
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|it| it.modified()).ok()
}

/// When the youngest source, manifest or table in a folder, or this file, was written.
fn newest(path: &Path) -> Option<SystemTime> {
    let Ok(folder) = std::fs::read_dir(path) else { return changed(path) };
    let entries = folder.filter_map(|entry| Some(entry.ok()?.path()));
    let matters = |path: &PathBuf| match path.extension() {
        None => {
            path.is_dir() && !["tests", "benches", "examples"].iter().any(|it| path.ends_with(it))
        }
        Some(kind) => kind == "rs" || kind == "toml" || kind == "txt",
    };
    entries.filter(matters).filter_map(|entry| newest(&entry)).max()
}

fn build(folder: &Path) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--offline", "--package=floodwall-cli", "--target-dir"]);
    command.arg(folder.parent().unwrap_or(folder));
    if folder.ends_with("release") {
        command.arg("--release");
    }
    let said = command.output().map_err(|error| format!("cargo: {error}"))?;
    let why = || format!("cargo: {}", String::from_utf8_lossy(&said.stderr));
    if said.status.success() { Ok(()) } else { Err(why()) }
}
