//! `floodwall cleanup`: repairs what an instance that was killed has left behind, without a start.
//!
//! Three things outlive a process that is killed: its control socket, the settings of the
//! interfaces with a kernel half that it had placed, noted in a file (`device/src/napi/note.rs`),
//! and the programs that a guard has pinned (`guard/src/pins.rs`). What a running instance has is
//! left alone, and so is a guard that has ended on purpose and left its programs in force.

use std::path::Path;

use floodwall_device::Placement;
use floodwall_guard::pins::{self, PinState};

use crate::args::CleanupArgs;
use crate::exit::Exit;
use crate::output;
use crate::socket::path;

/// Repairs the named interfaces, or all of this network namespace.
pub(crate) fn cleanup(args: &CleanupArgs) -> Exit {
    let mut text = String::new();
    let mut failed = false;
    let own = args.socket.iter().filter(|socket| socket.exists()).cloned();
    for socket in path::all().into_iter().chain(path::guards()).chain(own) {
        if path::is_alive(&socket) {
            continue;
        }
        match path::remove_stale(&socket) {
            Ok(()) => text.push_str(&format!("removed {}\n", output::shown(&socket.display()))),
            Err(error) => {
                failed = true;
                eprintln!("floodwall: {}: {error}", output::shown(&socket.display()));
            }
        }
    }
    for name in pinned(&args.interfaces) {
        match unpin(&name) {
            Ok(words) => text.push_str(&format!("{}: {words}\n", output::shown(&name))),
            Err(words) => {
                failed = true;
                eprintln!("floodwall: {}: {words}", output::shown(&name));
            }
        }
    }
    let all = args.interfaces.is_empty();
    let names = match all {
        true => interfaces(),
        false => args.interfaces.clone(),
    };
    for name in names {
        let shown = output::shown(&name);
        match Placement::repair(&name) {
            Ok(Some(0)) => {}
            Ok(Some(n)) => text.push_str(&format!("{shown}: {n} settings restored\n")),
            Ok(None) => text.push_str(&format!("{shown}: in use by a running instance\n")),
            // Of all, those that never could have been placed say nothing.
            Err(_) if all => {}
            Err(error) => {
                failed = true;
                eprintln!("floodwall: {shown}: cannot be repaired: {error}");
            }
        }
    }
    if text.is_empty() && !failed {
        text.push_str("nothing was left behind\n");
    }
    match (output::print(&text), failed) {
        (Exit::Done, true) => Exit::Refused,
        (exit, _) => exit,
    }
}

/// The names of interfaces with pinned programs: of those given, or of all.
fn pinned(named: &[String]) -> Vec<String> {
    let entries = std::fs::read_dir(pins::FOLDER).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| named.is_empty() || named.contains(name));
    names.sort();
    names
}

/// Removes what a guard that was killed has pinned. What it was, or why it stays.
fn unpin(name: &str) -> Result<String, String> {
    let folder = Path::new(pins::FOLDER).join(name);
    let (place, shown) = (output::shown(&folder.display()), output::shown(&name));
    let wrong = |error| format!("what is pinned in {place} stays: {error}; it takes root");
    let state = pins::state(&folder, name).map_err(wrong)?;
    let removed = |words: &str| {
        pins::remove(&folder).map(|()| format!("{words} ({place} removed)")).map_err(wrong)
    };
    match state {
        None | Some(PinState::Dead) => removed("nothing was guarded by what a guard had pinned"),
        Some(PinState::InForce) => {
            removed("no longer guarded by the programs of a guard that was killed")
        }
        Some(PinState::Held(process)) => Ok(format!("guarded by process {process}, left alone")),
        Some(PinState::Kept) => Ok(format!(
            "still guarded by what --pin has kept on purpose; `floodwall guard {shown} --unpin` \
             ends that"
        )),
        Some(PinState::Elsewhere) => Ok(format!(
            "what is pinned in {place} is at an interface of another network namespace, or of \
             another name, and left alone; `floodwall guard {shown} --unpin` ends it"
        )),
    }
}

/// The interfaces of this network namespace.
fn interfaces() -> Vec<String> {
    // `/sys` may be of another namespace; this file is of the reader's.
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
    text.lines().filter_map(name).collect()
}
