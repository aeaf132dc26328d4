//! An instance of the built command in a network namespace of its own, for the tests that need one.
//!
//! Needs root, for the namespace and the TAP; [`may`] reports where that is missing.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// The built command.
pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_floodwall");

/// The device and the addresses of most tests.
pub(crate) const HOST: [&str; 3] =
    ["--device=tap:fw0", "--address=10.0.0.2/24", "--address=fd00::2/64"];

/// Whether a namespace and a TAP can be had here, and the tests are not run in a step of their own.
pub(crate) fn may() -> bool {
    if std::env::var_os("FLOODWALL_APART").is_some_and(|apart| apart == "waiting") {
        eprintln!("skipped: run apart");
        return false;
    }
    let made = Command::new("unshare").args(["--net", "true"]).output();
    let may = made.is_ok_and(|made| made.status.success())
        && std::fs::File::options().write(true).open("/dev/net/tun").is_ok();
    if !may {
        eprintln!("skipped: needs root, for a network namespace and /dev/net/tun");
    }
    may
}

/// The command in a network namespace of its own, which ends with the process.
pub(crate) fn alone(args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", BIN]).args(args);
    command
}

/// A folder of one test, removed when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("floodwall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running instance. Its messages go to a file, because a pipe would be read at the end only.
pub(crate) struct Instance {
    pub(crate) child: Child,
    pub(crate) folder: Folder,
}

/// How an instance ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) socket: PathBuf,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A test that fails leaves nothing behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Instance {
    /// Starts `run` with these arguments, and waits until it answers.
    pub(crate) fn start(name: &str, args: &[&str]) -> Self {
        Self::start_after(name, "true", args, &[])
    }

    /// The same with environment variables, after a script has run in the new namespace.
    pub(crate) fn start_after(
        name: &str,
        script: &str,
        args: &[&str],
        envs: &[(&str, &str)],
    ) -> Self {
        let folder = Folder::new(name);
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", &format!("{script} && exec \"$@\""), "sh", BIN, "run"])
            .args(args)
            .arg("--socket")
            .arg(folder.0.join("s.sock"))
            .envs(envs.iter().copied())
            .stderr(std::fs::File::create(folder.0.join("said")).unwrap())
            .spawn();
        let instance = Self { child: child.unwrap(), folder };
        for _ in 0..1000 {
            if instance.answers() {
                return instance;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it never answered: {}", instance.said());
    }

    /// Whether it answers on its control socket; asked without a process.
    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else { return false };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = String::new();
        let came = stream.write_all(b"stat\n").and_then(|()| stream.read_to_string(&mut answer));
        let answer = serde_json::from_str::<Value>(&answer);
        came.is_ok() && answer.is_ok_and(|answer| answer.get("error").is_none())
    }

    /// The same on a TAP. The kernel's side gets 10.0.0.1 and fd00::1.
    pub(crate) fn start_with_peer(name: &str, args: &[&str]) -> Self {
        let all: Vec<_> = HOST.iter().chain(args).copied().collect();
        let instance = Self::start_after(name, "ip link set lo up", &all, &[]);
        instance.give_peer();
        instance
    }

    /// Gives the kernel's side of the TAP its addresses.
    pub(crate) fn give_peer(&self) {
        for words in
            ["addr add 10.0.0.1/24 dev fw0", "addr add fd00::1/64 dev fw0 nodad", "link set fw0 up"]
        {
            self.beside(&format!("ip {words}"));
        }
    }

    /// Runs a command on the kernel's side.
    pub(crate) fn beside(&self, words: &str) {
        let mut beside = Command::new("nsenter");
        beside.args(["-t", &self.child.id().to_string(), "-n"]).args(words.split(' '));
        assert!(beside.status().unwrap().success(), "{words}");
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.0.join("s.sock")
    }

    /// Runs a command against it.
    pub(crate) fn ask(&self, args: &[&str]) -> Output {
        let socket = self.socket();
        Command::new(BIN).args(args).arg("--socket").arg(socket).output().unwrap()
    }

    /// The standard output of a command that succeeds.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(args)).unwrap()
    }

    /// What it has logged so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.folder.0.join("said")).unwrap()
    }

    /// Waits until it has logged this.
    pub(crate) fn wait_said(&self, part: &str) -> String {
        for _ in 0..1500 {
            let said = self.said();
            if said.contains(part) {
                return said;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{part:?} is not in {}", self.said());
    }

    /// Runs a thread in its network namespace.
    pub(crate) fn within<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let pid = self.child.id();
        std::thread::spawn(move || {
            let space = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
            move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            what()
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ended {
        let code = self.child.wait().unwrap().code();
        Ended { code, said: self.said(), socket: self.socket() }
    }

    /// Sends a signal, and waits for the end.
    pub(crate) fn end_by(self, signal: Signal) -> Ended {
        self.signal(signal);
        self.ended()
    }

    /// Ends it in good order; what it has logged.
    pub(crate) fn end(self) -> String {
        let Ended { code, said, .. } = self.end_by(Signal::TERM);
        assert_eq!(code, Some(0), "{said}");
        said
    }
}
