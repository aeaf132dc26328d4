//! Commands of the machine, each bounded in time and ended by its own process id.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::namespace::skip;

/// No command may take longer.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a command may take to end after a signal, before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// What a command said.
pub(crate) struct Said {
    /// What it ended with.
    pub(crate) status: ExitStatus,
    /// Its output.
    pub(crate) text: String,
    /// Its complaints.
    pub(crate) complaint: String,
}

impl Said {
    /// Whether a line of its output has just these words, however far apart.
    pub(crate) fn has_words(&self, line: &str) -> bool {
        let words = || line.split(' ');
        self.text.lines().any(|line| line.split_whitespace().eq(words()))
    }
}

/// Ends the process when dropped, unless it has ended.
struct Bounded(Child);

impl Drop for Bounded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that is under way, at the latest until dropped.
pub(crate) struct Process {
    name: String,
    child: Bounded,
    text: thread::JoinHandle<String>,
    complaint: thread::JoinHandle<String>,
}

impl Process {
    /// Starts a command in the calling thread's namespace; `None`, and said so, where it is
    /// missing.
    pub(crate) fn start(program: &str, words: &str, input: &[u8]) -> Option<Self> {
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
        // A process that does not listen has ended already.
        let _ = stdin.write_all(input);
        drop(stdin);
        let text = read(child.0.stdout.take().unwrap());
        let complaint = read(child.0.stderr.take().unwrap());
        Some(Self { name: format!("{program} {words}"), child, text, complaint })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.id().cast_signed()).unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end, for as long as `limit`; whether it came.
    fn ends_within(&mut self, limit: Duration) -> bool {
        if self.has_ended() {
            return true;
        }
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).unwrap();
        let time = Timespec::try_from(limit).unwrap();
        loop {
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time)) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }

    /// Waits for its own end.
    pub(crate) fn wait(mut self, limit: Duration) -> Said {
        assert!(self.ends_within(limit), "`{}` takes longer than {limit:?}", self.name);
        self.said()
    }

    /// Signals it to end, as Ctrl-C does; one that does not end is killed.
    pub(crate) fn end(self) -> Said {
        self.end_by(Signal::INT)
    }

    /// The same by another signal, for a command that ignores Ctrl-C.
    pub(crate) fn end_by(mut self, signal: Signal) -> Said {
        if !self.has_ended() {
            let _ = kill_process(self.pid(), signal);
            if !self.ends_within(GRACE) {
                let _ = self.child.0.kill();
            }
        }
        self.said()
    }

    /// Ends it without asking, so that it cannot say farewell to anybody.
    pub(crate) fn kill(mut self) -> Said {
        let _ = self.child.0.kill();
        self.said()
    }

    fn said(mut self) -> Said {
        let status = self.child.0.wait().unwrap();
        let (text, complaint) = (self.text.join().unwrap(), self.complaint.join().unwrap());
        Said { status, text, complaint }
    }
}

fn read(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    let reader = thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    reader.unwrap()
}

/// Runs a command in the calling thread's namespace; `None`, and said so, where it is missing.
pub(crate) fn run(program: &str, words: &str, input: &[u8]) -> Option<Said> {
    Process::start(program, words, input).map(|process| process.wait(LIMIT))
}

/// Runs one `ip` command; returns whether it succeeded.
pub(crate) fn ip(words: &str) -> bool {
    run("ip", words, b"").is_some_and(|said| said.status.success())
}

/// What one `ip` command shows.
pub(crate) fn shown_by_ip(words: &str) -> String {
    run("ip", words, b"").map(|said| said.text).unwrap_or_default()
}
