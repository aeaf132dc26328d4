//! `floodwall top`: looks at a running instance again and again.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::Path;

use ratatui_core::text::Line;
use ratatui_core::widgets::Widget;

use crate::args::TopArgs;
use crate::cmd::stat::wait;
use crate::exit::Exit;
use crate::output;
use crate::rates::ReportDifference;
use crate::report::RunReport;
use crate::socket::client::{self, AskError};
use crate::socket::path;
use crate::terminal::{self, Next, Screen};
use crate::top::{History, Look, Picture, TopView};

/// Shows rates until `q`, a signal, or enough looks.
pub(crate) fn top(args: &TopArgs) -> Exit {
    let socket = match path::find(args.ask.socket.as_deref()) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    // Told before the terminal is taken over, and after it was set back.
    let ended = client::report(&socket).and_then(|first| {
        let own = args.count.is_none() && !args.ask.json && io::stdout().is_terminal();
        let screen = own.then(Screen::enter).and_then(Result::ok);
        watch(args, &socket, first, screen)
    });
    match ended {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("floodwall: {error}");
            error.exit()
        }
    }
}

fn watch(
    args: &TopArgs,
    socket: &Path,
    mut before: RunReport,
    mut screen: Option<Screen>,
) -> Result<Exit, AskError> {
    let mut looks = 0;
    let (mut history, look) = (History::default(), Look::of_environment());
    let mut view: Option<TopView> = None;
    loop {
        let next = match &mut screen {
            None => {
                wait(args.interval);
                Next::Look
            }
            Some(screen) => {
                let picture = view.as_ref().map(|view| Picture { view, history: &history, look });
                let shown = screen.show(|area, buf| match &picture {
                    Some(picture) => picture.draw(area, buf),
                    None => {
                        Line::raw("floodwall top: the first look; rates follow").render(area, buf)
                    }
                });
                if let Err(error) = shown {
                    // Its reader is gone, or the terminal.
                    let _ = error;
                    return Ok(Exit::Usage);
                }
                screen.wait(args.interval)
            }
        };
        match next {
            Next::End => return Ok(Exit::Done),
            Next::Redraw => continue,
            Next::Look => {}
        }
        let after = client::report(socket)?;
        if let Some(between) = ReportDifference::new(&before, &after) {
            let mut new = TopView::of(&between);
            new.sources = client::sources(socket);
            history.add(&new);
            looks += 1;
            let printed = match (&screen, args.ask.json) {
                (Some(_), _) => ControlFlow::Continue(()),
                (None, true) => output::print_again(&output::document(&serde_json::json!(new))),
                (None, false) => output::print_again(&output::lines(&new.text(size()))),
            };
            match printed {
                ControlFlow::Break(exit) => return Ok(exit),
                ControlFlow::Continue(()) if args.count.is_some_and(|count| looks >= count) => {
                    return Ok(Exit::Done);
                }
                ControlFlow::Continue(()) => {}
            }
            view = Some(new);
        }
        before = after;
    }
}

/// Lines and columns of the terminal; `None` without one.
fn size() -> Option<(u16, u16)> {
    io::stdout().is_terminal().then(terminal::size)
}
