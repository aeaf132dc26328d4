//! The terminal of `floodwall top`: a screen of its own, keys that need no line end, and everything
//! set back at the end, whichever way it comes.
//!
//! Invariant: what was changed at the terminal is undone when the [`Screen`] is dropped, and before
//! a signal ends or stops the process. Where standard input is no terminal, no keys are read; where
//! standard output is none, nothing is changed. SIGKILL alone leaves the terminal as it was then.

use std::io::{self, IsTerminal, Stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_dispatch::Clock;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::{Terminal, TerminalOptions, Viewport};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use ratatui_crossterm::crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::low_level::emulate_default_handler;

/// Signals that end the process, once the terminal is set back.
const ENDS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another look at the instance.
    Look,
    /// The last one again: the size is another.
    Redraw,
    /// The end.
    End,
}

/// A terminal that shows one picture after the other.
pub(crate) struct Screen {
    signals: SignalDelivery<UnixStream, SignalOnly>,
    clock: Clock,
    /// How standard input was set, where it is a terminal.
    before: Option<Termios>,
    is_entered: bool,
    /// What draws; only what differs from the last picture is written.
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// When the next look is due.
    due: Option<Instant>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// Signals cannot be caught; nothing was changed then.
    pub(crate) fn enter() -> io::Result<Self> {
        // A terminal that takes nothing (Ctrl-S) holds the first signal up, not the second.
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in ENDS {
            flag::register_conditional_default(signal, Arc::clone(&is_second))?;
            flag::register(signal, Arc::clone(&is_second))?;
        }
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let all = ENDS.into_iter().chain([SIGTSTP, SIGCONT, SIGWINCH]);
        let signals = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        let before = io::stdin().is_terminal().then(|| rustix::termios::tcgetattr(io::stdin()));
        let before = before.and_then(Result::ok);
        let terminal = blank()?;
        let (clock, is_entered, due) = (Clock::new(), false, None);
        let mut screen = Self { signals, clock, before, is_entered, terminal, due };
        screen.take_over();
        Ok(screen)
    }

    /// Shows a picture in place of what was there. The terminal shows the old one or the new one,
    /// where it knows synchronised output.
    pub(crate) fn show(&mut self, picture: impl FnOnce(Rect, &mut Buffer)) -> io::Result<()> {
        let area = area();
        queue!(io::stdout(), BeginSynchronizedUpdate)?;
        if self.terminal.get_frame().area() != area {
            self.clear()?;
        }
        self.terminal.draw(|frame| picture(frame.area(), frame.buffer_mut()))?;
        execute!(io::stdout(), EndSynchronizedUpdate)
    }

    /// Begins with an empty screen of the size that the terminal has now. ratatui's own way asks
    /// the terminal where its cursor is, and would take the answer and keys with it from standard
    /// input.
    fn clear(&mut self) -> io::Result<()> {
        self.terminal = blank()?;
        execute!(io::stdout(), Clear(ClearType::All))
    }

    /// Waits for a key, a signal, or the end of that time since the last look.
    pub(crate) fn wait(&mut self, seconds: u64) -> Next {
        let until = self.clock.now() + Duration::from_secs(seconds);
        let until = *self.due.get_or_insert(until);
        let next = self.wait_until(until);
        if next == Next::Look {
            self.due = None;
        }
        next
    }

    fn wait_until(&mut self, until: Instant) -> Next {
        loop {
            let keys = self.poll(until);
            let mut next = None;
            let signals: Vec<_> = self.signals.pending().collect();
            for signal in signals {
                match signal {
                    SIGWINCH => next = Some(Next::Redraw),
                    SIGCONT => {
                        self.take_over();
                        next = Some(Next::Redraw);
                    }
                    signal => {
                        self.give_back();
                        // Stops here, or does not come back.
                        let _ = emulate_default_handler(signal);
                    }
                }
            }
            next = match keys.map(read_key) {
                Some(Key::End) => Some(Next::End),
                Some(Key::Look) => Some(Next::Look),
                Some(Key::Other) | None => next,
            };
            match next {
                Some(next) => return next,
                None if self.clock.now() >= until => return Next::Look,
                None => {}
            }
        }
    }

    /// Sleeps until there is something to do; `Some` where that is a key.
    fn poll(&self, until: Instant) -> Option<()> {
        let left = until - self.clock.now();
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let keys = io::stdin();
        let mut waited = vec![PollFd::new(self.signals.get_read(), PollFlags::IN)];
        if self.before.is_some() {
            waited.push(PollFd::new(&keys, PollFlags::IN));
        }
        // A signal that interrupts it is seen by its caller.
        let _ = poll(&mut waited, Some(&timeout));
        waited.get(1).filter(|keys| !keys.revents().is_empty()).map(|_| ())
    }

    /// Keys come at once and are not shown; signals from keys stay.
    fn take_over(&mut self) {
        if let Some(before) = &self.before {
            let mut own = before.clone();
            own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            own.special_codes[SpecialCodeIndex::VMIN] = 1;
            own.special_codes[SpecialCodeIndex::VTIME] = 0;
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &own);
        }
        self.is_entered = true;
        // The next picture is drawn whole.
        let _ = execute!(io::stdout(), EnterAlternateScreen, Hide).and_then(|()| self.clear());
    }

    fn give_back(&mut self) {
        if !std::mem::take(&mut self.is_entered) {
            return;
        }
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, Show, LeaveAlternateScreen);
        if let Some(before) = &self.before {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Lines and columns of the terminal at standard output.
pub(crate) fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        // It does not say.
        _ => (24, 80),
    }
}

/// An empty screen.
fn blank() -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let viewport = Viewport::Fixed(area());
    Terminal::with_options(CrosstermBackend::new(io::stdout()), TerminalOptions { viewport })
}

fn area() -> Rect {
    let (lines, columns) = size();
    Rect::new(0, 0, columns, lines)
}

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    End,
    Look,
    Other,
}

/// What the keys that wait ask for; a terminal that is gone is the end.
fn read_key((): ()) -> Key {
    let mut keys = [0; 64];
    // Not by the buffer of the standard library, in which keys would wait unseen by `poll`.
    match rustix::io::read(io::stdin(), &mut keys) {
        Ok(0) | Err(_) => Key::End,
        Ok(read) => asked_by(keys.get(..read).unwrap_or_default()),
    }
}

/// What these keys ask for together: the end before a look. Keys that the terminal sends as escape
/// sequences (arrows, function keys) ask for nothing.
fn asked_by(mut keys: &[u8]) -> Key {
    let mut asked = Key::Other;
    while let Some((key, rest)) = keys.split_first() {
        keys = rest;
        match key {
            b'q' | b'Q' => return Key::End,
            b' ' | b'\n' | b'\r' => asked = Key::Look,
            0x1b => keys = behind_sequence(rest),
            _ => {}
        }
    }
    asked
}

/// What follows an escape sequence, of which this is the part behind the escape character
/// (ECMA-48 section 5.4 and single shift three).
fn behind_sequence(keys: &[u8]) -> &[u8] {
    let len = match keys {
        [b'[', parameters @ ..] => {
            let is_final = |key: &u8| (0x40..0x7f).contains(key);
            parameters.iter().position(is_final).map_or(keys.len(), |at| at + 2)
        }
        [b'O', ..] => 2,
        _ => 0,
    };
    keys.get(len..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_read_together_all_count_and_function_keys_ask_for_nothing() {
        for (keys, asked) in [
            (&b"q"[..], Key::End),
            (b" ", Key::Look),
            (b"\x1b[Az q", Key::End),
            (b"\x1b[Az ", Key::Look),
            (b"\x1bOQ", Key::Other),
            (b"\x1b[12;2Q\x1b[1;5", Key::Other),
            (b"\x1bOQq", Key::End),
            (b"\x1b", Key::Other),
            (b"\x1bq", Key::End),
            (b"", Key::Other),
        ] {
            assert_eq!(asked_by(keys), asked, "{keys:?}");
        }
    }
}
