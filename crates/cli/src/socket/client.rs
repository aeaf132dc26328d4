//! The client of the control socket.
//!
//! Called by `stat`. Bounded in time and bytes, so that no server can hold it up.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::exit::Exit;
use crate::output;

/// How long an instance may take for each step of its answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// The same for a batch of routes.
const LONG_PATIENCE: Duration = Duration::from_secs(600);
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// From how many lines on.
const TOLD_FROM: usize = 50_000;
/// How often a worker that has no time is asked; the instance waits a second for it each time.
const LATE_TRIES: u32 = 5;
/// Bytes of the longest answer.
const ANSWER_MAX: u64 = 16 << 20;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum AskError {
    /// No instance was reached.
    #[error("no instance is reached on {path}: {why}; {remedy}", path = .path.display())]
    Unreachable { path: PathBuf, why: String, remedy: &'static str },
    /// An instance was reached, and refused the request.
    #[error("the instance on {path} refused: {why}", path = .path.display())]
    Refused { path: PathBuf, why: String },
    /// An instance was reached, and its worker had no time for an answer.
    #[error(
        "the instance on {path} is alive, but a worker did not answer in time: other programs have \
         its core, or it hangs; ask again",
        path = .path.display()
    )]
    Late { path: PathBuf },
}

impl AskError {
    pub(crate) const fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. } => Exit::Unreachable,
            Self::Refused { .. } | Self::Late { .. } => Exit::Refused,
        }
    }
}

/// Sends lines about routes and rules, to be carried out all or, where `force` is set, as many as
/// can be; gives the answer.
pub(crate) fn ask_routes(
    path: &Path,
    lines: &str,
    force: bool,
) -> Result<serde_json::Value, AskError> {
    let mode = if force { "force" } else { "whole" };
    let count = lines.lines().filter(|line| !line.is_empty()).count();
    let tells = |waited: Duration| {
        if count >= TOLD_FROM {
            let seconds = waited.as_secs();
            eprintln!("floodwall: {count} lines sent; the instance is at work for {seconds} s");
        }
    };
    let request = format!("routes {} {mode}\n{lines}", lines.len() + 1);
    ask_for(path, &request, LONG_PATIENCE, tells)
}

/// Sends one request, and gives the answer, which is one JSON document.
pub(crate) fn ask(path: &Path, request: &str) -> Result<serde_json::Value, AskError> {
    ask_for(path, request, ANSWER_PATIENCE, |_| {})
}

/// As [`ask`], and asks again where a worker has no time, so that a busy machine does not end what
/// looks again and again.
pub(crate) fn ask_patiently(path: &Path, request: &str) -> Result<serde_json::Value, AskError> {
    for _ in 1..LATE_TRIES {
        match ask(path, request) {
            Err(AskError::Late { .. }) => {}
            answered => return answered,
        }
    }
    ask(path, request)
}

/// The report of an instance, for humans: its texts are escaped.
pub(crate) fn report(path: &Path) -> Result<crate::report::RunReport, AskError> {
    let request = super::request::ControlRequest::Stat.to_string();
    for _ in 0..LATE_TRIES {
        let text = ask_text(path, &request, ANSWER_PATIENCE, |_| {})?;
        // An answer in which there is nothing to be escaped is read at once: that is the usual one,
        // and costs a third of the other way. Errors are not of this form.
        if is_harmless(&text)
            && let Ok(report) = serde_json::from_slice(&text)
        {
            return Ok(report);
        }
        match read_answer(path, &text) {
            Err(AskError::Late { .. }) => {}
            answered => return escaped_report(path, answered?),
        }
    }
    Err(AskError::Late { path: path.to_owned() })
}

/// Whether a document has neither an escape nor a byte that is not printable ASCII.
fn is_harmless(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n') && *byte != b'\\')
}

fn escaped_report(
    path: &Path,
    mut answer: serde_json::Value,
) -> Result<crate::report::RunReport, AskError> {
    output::harmless(&mut answer);
    serde_json::from_value(answer).map_err(|error| AskError::Refused {
        path: path.to_owned(),
        why: format!("it is of another version ({error}); ask it with its own binary"),
    })
}

/// The source prefixes of what arrives now; none where the instance does not say.
pub(crate) fn sources(path: &Path) -> Vec<crate::sources::SourceShare> {
    let answer = ask(path, "sources").unwrap_or_default();
    let sources = answer.get("sources").cloned().unwrap_or_default();
    serde_json::from_value(sources).unwrap_or_default()
}

/// As [`ask`], for a request that may keep the instance for longer.
pub(crate) fn ask_slowly(path: &Path, request: &str) -> Result<serde_json::Value, AskError> {
    ask_for(path, request, LONG_PATIENCE, |_| {})
}

fn ask_for(
    path: &Path,
    request: &str,
    patience: Duration,
    tells: impl Fn(Duration),
) -> Result<serde_json::Value, AskError> {
    read_answer(path, &ask_text(path, request, patience, tells)?)
}

/// The text of an answer.
fn ask_text(
    path: &Path,
    request: &str,
    patience: Duration,
    tells: impl Fn(Duration),
) -> Result<Vec<u8>, AskError> {
    let mut stream = UnixStream::connect(path).map_err(|error| unreachable(path, &error))?;
    let refused = |why: &str| AskError::Refused { path: path.to_owned(), why: why.to_owned() };
    exchange(&mut stream, request, patience, tells).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            refused("it does not answer in time")
        }
        _ => refused(&error.to_string()),
    })
}

fn read_answer(path: &Path, text: &[u8]) -> Result<serde_json::Value, AskError> {
    let refused = |why: String| AskError::Refused { path: path.to_owned(), why };
    let answer: serde_json::Value = serde_json::from_slice(text)
        .map_err(|error| refused(format!("its answer makes no sense ({error})")))?;
    if answer.get("late").is_some() {
        return Err(AskError::Late { path: path.to_owned() });
    }
    match answer.get("error").and_then(|error| error.as_str()) {
        Some(why) => Err(refused(why.to_owned())),
        None => Ok(answer),
    }
}

fn exchange(
    stream: &mut UnixStream,
    request: &str,
    patience: Duration,
    tells: impl Fn(Duration),
) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PROGRESS_INTERVAL.min(patience)))?;
    stream.set_write_timeout(Some(patience))?;
    tells(Duration::ZERO);
    stream.write_all(format!("{request}\n").as_bytes())?;
    let (mut answer, mut waited) = (Vec::new(), Duration::ZERO);
    let mut stream = stream.take(ANSWER_MAX);
    loop {
        // What has come is kept, also where the rest takes longer.
        match stream.read_to_end(&mut answer) {
            Ok(_) => return Ok(answer),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if waited < patience => {
                    waited += PROGRESS_INTERVAL;
                    tells(waited);
                }
                _ => return Err(error),
            },
        }
    }
}

fn unreachable(path: &Path, error: &io::Error) -> AskError {
    let (why, remedy) = match error.kind() {
        io::ErrorKind::NotFound => {
            ("there is no such socket", "start one with `floodwall run`, or name it with --socket")
        }
        io::ErrorKind::ConnectionRefused => {
            ("its instance is gone", "start one with `floodwall run`")
        }
        io::ErrorKind::PermissionDenied => {
            ("permission denied", "run this as the user that started it, or with sudo")
        }
        _ => {
            return AskError::Unreachable {
                path: path.to_owned(),
                why: error.to_string(),
                remedy: "is it the right path?",
            };
        }
    };
    AskError::Unreachable { path: path.to_owned(), why: why.to_owned(), remedy }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Answers the first requests with these lines, and then no more.
    fn with_answers<T>(name: &str, answers: &[&str], test: impl FnOnce(&Path) -> T) -> T {
        let file = format!("fw-client-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let tested = std::thread::scope(|scope| {
            scope.spawn(move || {
                for answer in answers {
                    let (mut stream, _) = listener.accept().unwrap();
                    BufReader::new(&stream).read_line(&mut String::new()).unwrap();
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            });
            test(&path)
        });
        std::fs::remove_file(&path).unwrap();
        tested
    }

    #[test]
    fn a_worker_that_has_no_time_is_asked_again_and_a_refusal_is_final() {
        let late = "{\"error\": \"the worker did not answer in time\", \"late\": true}\n";
        let answers = [late, late, "{\"up\": 1}\n"];
        let asked = with_answers("again", &answers, |path| ask_patiently(path, "stat"));
        assert_eq!(asked.unwrap()["up"], 1);
        let answers = [late; LATE_TRIES as usize];
        let asked = with_answers("late", &answers, |path| ask_patiently(path, "stat"));
        let error = asked.unwrap_err();
        assert!(matches!(error, AskError::Late { .. }) && error.exit() == Exit::Refused);
        let refused = ["{\"error\": \"no\"}\n"];
        let asked = with_answers("refused", &refused, |path| ask_patiently(path, "stat"));
        assert!(matches!(asked.unwrap_err(), AskError::Refused { .. }));
    }
}
