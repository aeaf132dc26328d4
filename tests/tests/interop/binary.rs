//! The `floodwall` command that stands beside this test in cargo's folder.
//!
//! `cargo test --workspace` has built it by then. Where only this crate's tests were asked for it
//! may be missing or older than its sources: then cargo is asked for it, once. Invariant: no test
//! runs a command that is older than what it was built from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
    let folder = own.parent().and_then(Path::parent).ok_or("this test lies nowhere")?;
    let path = folder.join("floodwall");
    if !is_fresh(&path) {
        build(folder)?;
    }
    if path.exists() { Ok(path) } else { Err(format!("there is no {}", path.display())) }
}

/// Whether it is there and no source that it was made of is newer.
fn is_fresh(path: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified());
    let Ok(built) = changed(path) else { return false };
    // Cargo's list of what a command was built from, in make's words.
    let Ok(list) = std::fs::read_to_string(path.with_extension("d")) else { return false };
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    sources.split_whitespace().all(|source| changed(Path::new(source)).is_ok_and(|at| at <= built))
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
