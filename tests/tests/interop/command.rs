//! Commands of the machine, each bounded in time and ended by its own process id.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::namespace::{skip, until};

/// No command may take longer.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command said.
pub(crate) struct Said {
    /// What it ended with.
    pub(crate) status: ExitStatus,
    /// Its output.
    pub(crate) text: String,
    /// Its complaints.
    pub(crate) complaint: String,
}

/// Ends the process when dropped, unless it has ended.
struct Bounded(Child);

impl Drop for Bounded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command in the calling thread's namespace; `None`, and said so, where it is missing.
pub(crate) fn run(program: &str, words: &str, input: &[u8]) -> Option<Said> {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).env("LC_ALL", "C");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => Bounded(child),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(&format!("the command `{program}` is missing"));
            return None;
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let mut stdin = child.0.stdin.take().unwrap();
    // Who does not listen has ended already.
    let _ = stdin.write_all(input);
    drop(stdin);
    let text = read(child.0.stdout.take().unwrap());
    let complaint = read(child.0.stderr.take().unwrap());
    let mut status = None;
    let has_ended = until(LIMIT, || {
        status = child.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(has_ended, "`{program} {words}` takes longer than {LIMIT:?}");
    let (text, complaint) = (text.join().unwrap(), complaint.join().unwrap());
    Some(Said { status: status.unwrap(), text, complaint })
}

fn read(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    let reader = thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    reader.unwrap()
}

/// Runs one `ip` command; whether it did what it was asked to.
pub(crate) fn ip(words: &str) -> bool {
    run("ip", words, b"").is_some_and(|said| said.status.success())
}

/// What one `ip` command shows.
pub(crate) fn shown_by_ip(words: &str) -> String {
    run("ip", words, b"").map(|said| said.text).unwrap_or_default()
}
