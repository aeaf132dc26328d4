//! `floodwall stat`: asks a running instance, and shows the answer.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::args::StatArgs;
use crate::exit::Exit;
use crate::report::Report;
use crate::show::{self, Style};
use crate::socket::{STAT, client, path};

/// Asks once, or again and again.
pub(crate) fn stat(args: &StatArgs) -> Exit {
    let socket = match find(args) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    loop {
        let exit = look(args, &socket);
        if exit != Exit::Done || !args.watch {
            return exit;
        }
        wait(args.interval);
    }
}

#[expect(clippy::disallowed_methods, reason = "a command between two looks has nothing to do")]
fn wait(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

/// The named socket, or the only one on which somebody answers.
fn find(args: &StatArgs) -> Result<PathBuf, Exit> {
    if let Some(socket) = &args.socket {
        return Ok(socket.clone());
    }
    let mut found = path::all();
    if found.len() > 1 {
        found.retain(|path| path::is_alive(path));
    }
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => {
            eprintln!(
                "floodwall: no instance is reached: there is no control socket; start one with \
                 `floodwall run`, or name its socket with --socket"
            );
            Err(Exit::Unreachable)
        }
        (Some(last), false) => {
            eprintln!("floodwall: several instances run; say which one with --socket:");
            for path in found.iter().chain([&last]) {
                eprintln!("  {}", path.display());
            }
            Err(Exit::Usage)
        }
    }
}

fn look(args: &StatArgs, socket: &std::path::Path) -> Exit {
    let answer = match client::ask(socket, STAT) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return error.exit();
        }
    };
    let text = if args.json {
        format!("{answer}\n")
    } else {
        match serde_json::from_value::<Report>(answer) {
            Ok(report) => {
                let clear = if args.watch { clear_screen() } else { "" };
                format!("{clear}{}", show::report(&report, args.all, Style::of(&io::stdout())))
            }
            Err(error) => {
                eprintln!(
                    "floodwall: the instance on {} is of another version ({error}); ask it with \
                     --json, or with its own binary",
                    socket.display()
                );
                return Exit::Refused;
            }
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Done,
        // Who pipes us into `head` has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            eprintln!("floodwall: cannot write to standard output: {error}");
            Exit::Usage
        }
    }
}

fn clear_screen() -> &'static str {
    use std::io::IsTerminal;
    if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}
