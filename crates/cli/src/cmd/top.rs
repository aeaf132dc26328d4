//! `floodwall top`: looks at a running instance again and again.

use std::io::{self, IsTerminal};

use crate::args::TopArgs;
use crate::cmd::stat::{clear_screen, wait};
use crate::exit::Exit;
use crate::output;
use crate::rates::ReportDifference;
use crate::report::RunReport;
use crate::socket::{client, path};
use crate::top::TopView;

/// Shows rates until it is interrupted, or has looked often enough.
pub(crate) fn top(args: &TopArgs) -> Exit {
    let socket = match path::find(args.ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let (mut before, mut looks): (Option<RunReport>, u64) = (None, 0);
    loop {
        let after = match client::report(&socket) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("floodwall: {error}");
                return error.exit();
            }
        };
        if let Some(between) = before.as_ref().and_then(|b| ReportDifference::new(b, &after)) {
            let mut view = TopView::of(&between);
            view.sources = client::sources(&socket);
            let text = match (args.ask.json, serde_json::to_string(&view)) {
                (true, Ok(json)) => json + "\n",
                _ => format!("{}{}", clear_screen(), view.text(terminal_size())),
            };
            let exit = output::print(&text);
            looks += 1;
            if exit != Exit::Done || args.count.is_some_and(|count| looks >= count) {
                return exit;
            }
        }
        before = Some(after);
        wait(args.interval);
    }
}

/// Lines and columns of the terminal; without one as many as there are.
fn terminal_size() -> (usize, usize) {
    if !io::stdout().is_terminal() {
        return (usize::MAX, usize::MAX);
    }
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let of = |size: rustix::termios::Winsize| match (size.ws_row, size.ws_col) {
        // It does not say.
        (0, _) | (_, 0) => (24, 80),
        (rows, columns) => (usize::from(rows).saturating_sub(1), usize::from(columns)),
    };
    size.map_or((24, 80), of)
}
