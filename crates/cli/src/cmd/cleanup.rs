//! `floodwall cleanup`: repairs what an instance that was killed has left behind, without a start.
//!
//! Two things outlive a process that is killed: its control socket, and the settings of the
//! interfaces with a kernel half that it had placed, noted in a file (`device/src/napi/note.rs`).
//! What a running instance has is left alone.

use floodwall_device::Placement;

use crate::args::CleanupArgs;
use crate::exit::Exit;
use crate::output;
use crate::socket::path;

/// Repairs the named interfaces, or all of this network namespace.
pub(crate) fn cleanup(args: &CleanupArgs) -> Exit {
    let mut text = String::new();
    let mut failed = false;
    let own = args.socket.iter().filter(|socket| socket.exists()).cloned();
    for socket in path::all().into_iter().chain(own) {
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

/// The interfaces of this network namespace.
fn interfaces() -> Vec<String> {
    // `/sys` may be of another namespace; this file is of the reader's.
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
    text.lines().filter_map(name).collect()
}
