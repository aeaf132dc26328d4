//! `floodwall stat`: queries a running instance, and shows the answer.

use std::io::{self, Write};
use std::time::Duration;

use crate::args::StatArgs;
use crate::exit::Exit;
use crate::proc_net;
use crate::report::RunReport;
use crate::show::{self, ShownValue, Style};
use crate::socket::request::ControlRequest;
use crate::socket::{client, path};

/// Queries once, or periodically.
pub(crate) fn stat(args: &StatArgs) -> Exit {
    let socket = match path::find(args.socket.as_deref()) {
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

fn look(args: &StatArgs, socket: &std::path::Path) -> Exit {
    let answer = match client::ask(socket, &ControlRequest::Stat.to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return error.exit();
        }
    };
    let text = if args.json {
        format!("{answer}\n")
    } else {
        match serde_json::from_value::<RunReport>(answer) {
            Ok(report) => {
                if let Some(folder) = &args.proc_net {
                    return for_nstat(folder, &report);
                }
                let shown = ShownValue { all: args.all, workers: args.workers };
                let clear = if args.watch { clear_screen() } else { "" };
                format!("{clear}{}", show::report(&report, shown, Style::of(&io::stdout())))
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
        // A closed pipe (as from `head`) is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
        Err(error) => {
            eprintln!("floodwall: cannot write to standard output: {error}");
            Exit::Usage
        }
    }
}

fn for_nstat(folder: &std::path::Path, report: &RunReport) -> Exit {
    match proc_net::write(folder, &report.counters) {
        Ok(()) => Exit::Done,
        Err(error) => {
            eprintln!("floodwall: cannot write into {}: {error}", folder.display());
            Exit::Usage
        }
    }
}

fn clear_screen() -> &'static str {
    use std::io::IsTerminal;
    if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}
