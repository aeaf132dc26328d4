//! `floodwall stat`: queries a running instance, and shows the answer.

use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::args::StatArgs;
use crate::exit::Exit;
use crate::metrics;
use crate::output;
use crate::proc_net;
use crate::rates::ReportDifference;
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
    if args.watch && !args.json {
        return watch(args, &socket);
    }
    loop {
        match look(args, &socket) {
            ControlFlow::Break(exit) => return exit,
            ControlFlow::Continue(()) if !args.watch => return Exit::Done,
            ControlFlow::Continue(()) => wait(args.interval),
        }
    }
}

/// Shows what changed between two looks, per second, until interrupted.
fn watch(args: &StatArgs, socket: &std::path::Path) -> Exit {
    let mut before: Option<RunReport> = None;
    loop {
        let after = match client::report(socket) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("floodwall: {error}");
                return error.exit();
            }
        };
        let text = match before.as_ref().and_then(|b| ReportDifference::new(b, &after)) {
            Some(between) => {
                let style = Style::of(&io::stdout());
                format!("{}{}", clear_screen(), show::differences(&between, args.all, style))
            }
            None => "floodwall: the first look; differences follow\n".to_owned(),
        };
        if let ControlFlow::Break(exit) = output::print_again(&text) {
            return exit;
        }
        before = Some(after);
        wait(args.interval);
    }
}

#[expect(clippy::disallowed_methods, reason = "a command between two looks has nothing to do")]
pub(crate) fn wait(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

fn look(args: &StatArgs, socket: &std::path::Path) -> ControlFlow<Exit> {
    let answer = match client::ask_patiently(socket, &ControlRequest::Stat.to_string()) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {error}");
            return ControlFlow::Break(error.exit());
        }
    };
    if args.json {
        return output::print_again(&output::document(&answer));
    }
    let mut answer = answer;
    output::harmless(&mut answer);
    let report = match serde_json::from_value::<RunReport>(answer) {
        Ok(report) => report,
        Err(error) => {
            eprintln!(
                "floodwall: the instance on {} is of another version ({error}); ask it with \
                 --json, or with its own binary",
                socket.display()
            );
            return ControlFlow::Break(Exit::Refused);
        }
    };
    if args.prometheus {
        let text = metrics::text(&report, metrics::MetricsFormat::Prometheus);
        return ControlFlow::Break(output::print(&text));
    }
    if let Some(folder) = &args.proc_net {
        return ControlFlow::Break(for_nstat(folder, &report));
    }
    let shown = ShownValue { all: args.all, workers: args.workers };
    output::print_again(&show::report(&report, shown, Style::of(&io::stdout())))
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

pub(crate) fn clear_screen() -> &'static str {
    use std::io::IsTerminal;
    if io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" }
}
