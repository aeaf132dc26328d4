//! The log of `run`: one line an event on standard error, as text or JSON, with time and level.
//!
//! Started once by [`start`]; modules write by the macros of `tracing`. Lines go through a bounded
//! queue to a thread of their own, so that a reader that does not read, a full disk or a closed
//! pipe never holds up a thread of the process. Invariants: no line contains a control character
//! but its end; nothing on the packet path logs.
//!
//! # Under flood
//! Reachable by all that makes events: the watch of links and floods, four times a second, with a
//! rate limit of their own. Bound: [`LINES_MAX`] lines wait. When full the newest are lost; their
//! number is written as soon as there is room.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::ValueEnum;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::threads::spawn_named;

/// Lines that may wait.
const LINES_MAX: usize = 1024;
/// How long the end waits for lines that are not written yet.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// The least important lines that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
        }
    }
}

/// What the thread that writes is given.
enum LogItem {
    Line(Vec<u8>),
    /// All before it has been written.
    Mark(SyncSender<()>),
}

/// The way to the thread that writes.
#[derive(Clone)]
struct LogQueue {
    lines: SyncSender<LogItem>,
    lost: Arc<AtomicU64>,
}

static LOG_QUEUE: OnceLock<LogQueue> = OnceLock::new();

/// Starts the log of this process; a second call changes nothing.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start(format: LogFormat, level: LogLevel) -> Result<(), String> {
    let (lines, waiting) = sync_channel(LINES_MAX);
    let queue = LogQueue { lines, lost: Arc::default() };
    if LOG_QUEUE.set(queue.clone()).is_err() {
        return Ok(());
    }
    let lost = Arc::clone(&queue.lost);
    spawn_named("log", move || write_all(&mut io::stderr(), &waiting, &lost))?;
    let plain = tracing_subscriber::fmt()
        .with_max_level(level.filter())
        .log_internal_errors(false)
        .with_writer(queue);
    // Only another subscriber could be in the way, and there is none.
    let _ = match format {
        LogFormat::Text => {
            tracing::subscriber::set_global_default(plain.event_format(LineFormat).finish())
        }
        LogFormat::Json => tracing::subscriber::set_global_default(
            plain.json().flatten_event(true).with_current_span(false).with_target(false).finish(),
        ),
    };
    Ok(())
}

/// Waits until all lines are written, at most for a second.
pub(crate) fn flush() {
    let Some(queue) = LOG_QUEUE.get() else { return };
    let (mark, written) = sync_channel(1);
    if queue.lines.try_send(LogItem::Mark(mark)).is_ok() {
        let _ = written.recv_timeout(LAST_LINES);
    }
}

/// Writes until every sender is gone. A line that cannot be written is counted as lost.
fn write_all(out: &mut impl Write, waiting: &Receiver<LogItem>, lost: &AtomicU64) {
    for item in waiting {
        let line = match item {
            LogItem::Line(line) => line,
            LogItem::Mark(written) => {
                // The one that waits may have given up.
                let _ = written.try_send(());
                continue;
            }
        };
        let missing = lost.swap(0, Ordering::Relaxed);
        if missing > 0 && writeln!(out, "floodwall: {missing} messages were lost").is_err() {
            lost.fetch_add(missing, Ordering::Relaxed);
        }
        if out.write_all(&line).is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Write for LogQueue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(LogItem::Line(one_line(bytes))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogQueue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A line with every control character escaped but its end.
fn one_line(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let mut line = crate::output::shown(&text.strip_suffix('\n').unwrap_or(&text));
    line.push('\n');
    line.into_bytes()
}

/// `2026-01-02T03:04:05.123456Z  WARN floodwall: message key=value`.
struct LineFormat;

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        SystemTime.format_time(&mut writer)?;
        write!(writer, " {:>5} floodwall: ", event.metadata().level())?;
        context.format_fields(writer.by_ref(), event)?;
        writer.write_char('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_holds_a_control_character_but_its_end() {
        assert_eq!(one_line(b"a \x1b[2J\nb\n"), b"a \\u{1b}[2J\\nb\n");
        assert_eq!(one_line(b"whole\n"), b"whole\n");
    }

    /// Takes nothing while it is full.
    struct Disk {
        full: bool,
        text: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_queue_and_a_disk_that_are_full_lose_lines_that_are_counted_and_nothing_waits() {
        let (lines, waiting) = sync_channel(2);
        let mut queue = LogQueue { lines, lost: Arc::default() };
        for _ in 0..5 {
            queue.write_all(b"line\n").unwrap();
        }
        let lost = Arc::clone(&queue.lost);
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        drop(queue);
        let mut disk = Disk { full: true, text: Vec::new() };
        write_all(&mut disk, &waiting, &lost);
        assert_eq!(lost.load(Ordering::Relaxed), 5);
        let (lines, waiting) = sync_channel(2);
        lines.send(LogItem::Line(b"later\n".to_vec())).unwrap();
        drop(lines);
        disk.full = false;
        write_all(&mut disk, &waiting, &lost);
        assert_eq!(
            String::from_utf8(disk.text).unwrap(),
            "floodwall: 5 messages were lost\nlater\n"
        );
    }
}
