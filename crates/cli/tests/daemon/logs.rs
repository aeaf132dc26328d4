//! The log of the built command: JSON for programs, and outputs that fail: a full disk, a closed
//! pipe, a reader that does not read.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{BIN, Ended, Folder, HOST, Instance, alone, may};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn every_line_of_the_json_log_is_an_object_with_time_and_level() {
    if !may() {
        return;
    }
    let args: Vec<_> = HOST.iter().copied().chain(["--log-format=json"]).collect();
    let running = Instance::start("json-log", &args);
    assert!(running.ask(&["link", "set", "fw0", "down"]).status.success());
    let said = running.wait_said("link_down");
    let objects: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for object in &objects {
        let time = object["timestamp"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.len() > 20, "{object}");
        assert!(["INFO", "WARN", "ERROR"].contains(&object["level"].as_str().unwrap()));
        assert!(object["message"].is_string(), "{object}");
    }
    let down = objects.iter().find(|object| object["event"] == "link_down").unwrap();
    assert_eq!(
        (&down["level"], &down["message"]),
        (&"WARN".into(), &"fw0: the link is down".into())
    );
    let Ended { code, said, .. } = running.end_by(Signal::TERM);
    assert_eq!(code, Some(0), "{said}");
    let args: Vec<_> = HOST.iter().copied().chain(["--log-level=error"]).collect();
    assert_eq!(Instance::start("quiet-log", &args).end(), "");
}

/// Waits until an instance answers on a socket.
fn wait_for(folder: &Folder) {
    let socket = folder.0.join("s.sock");
    for _ in 0..1000 {
        let stat = Command::new(BIN).args(["stat", "--socket"]).arg(&socket).output().unwrap();
        if stat.status.success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never answered");
}

fn start(folder: &Folder, log: Stdio) -> Child {
    let socket = folder.0.join("s.sock");
    alone(&["run", "--socket", socket.to_str().unwrap()]).args(HOST).stderr(log).spawn().unwrap()
}

fn stop(mut child: Child) -> Option<i32> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    if !may() {
        return;
    }
    // A full disk.
    let folder = Folder::new("log-full");
    let child = start(&folder, File::options().write(true).open("/dev/full").unwrap().into());
    wait_for(&folder);
    assert_eq!(stop(child), Some(0));
    // A closed pipe.
    let folder = Folder::new("log-closed");
    let mut child = start(&folder, Stdio::piped());
    drop(child.stderr.take());
    wait_for(&folder);
    let socket = folder.0.join("s.sock");
    let mut reload = Command::new(BIN);
    reload.args(["reload", "--socket"]).arg(&socket).output().unwrap();
    wait_for(&folder);
    assert_eq!(stop(child), Some(0));
}

#[test]
fn a_reader_of_the_log_that_does_not_read_stops_nothing() {
    if !may() {
        return;
    }
    let folder = Folder::new("log-deaf");
    let child = start(&folder, Stdio::piped());
    wait_for(&folder);
    let socket = folder.0.join("s.sock");
    // Each writes lines: more of them than a pipe of 64 KiB and the queue hold.
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    for turn in 0..4000 {
        rustix::process::kill_process(pid, Signal::USR1).unwrap();
        if turn % 4 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let stat = Command::new(BIN).args(["stat", "--socket"]).arg(&socket).output().unwrap();
    assert!(stat.status.success(), "{stat:?}");
    assert_eq!(stop(child), Some(0));
}

#[test]
fn commands_with_a_full_or_closed_output_end_with_an_error_and_never_panic() {
    if !may() {
        return;
    }
    let running = Instance::start("outputs", &HOST);
    let socket = running.socket();
    let socket = socket.to_str().unwrap();
    let good = running.folder.0.join("good.toml");
    std::fs::write(&good, "[[interface]]\ndevice = \"tap:fw9\"\n").unwrap();
    let check = format!("check {}", good.display());
    for words in [
        "stat",
        "stat --json",
        "stat --prometheus",
        "top -n 1",
        "top -n 1 --json",
        "explain --seconds 1",
        "explain --seconds 1 --json",
        "socket show -ta",
        "address show",
        "link show",
        "neigh show",
        "route show",
        "rule show",
        "reload",
        "man",
        "completions bash",
        "check /nonexistent",
        &check,
        "--help",
        "lab list",
        "lab list --json",
    ] {
        let own = ["man", "completions", "check", "--help", "lab"];
        let asks = !own.iter().any(|word| words.starts_with(word));
        let mut args: Vec<&str> = words.split(' ').collect();
        if asks {
            // Of `route` every option stands before the words.
            args.splice(1..1, ["--socket", socket]);
        }
        let full = || File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(BIN).args(&args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{words}: {said}");
        assert!(output.status.code().is_some(), "{words}: a signal ended it");
        // Of `--help` clap says nothing where it cannot be written.
        let is_error = output.status.code() != Some(0) || words == "--help";
        // Some have nothing to say here.
        let silent = ["neigh show", "route show", "rule show"].contains(&words);
        assert!(is_error || silent, "{words}: a full disk is an error");
        // Both outputs gone.
        let status = Command::new(BIN).args(&args).stdout(full()).stderr(full()).status().unwrap();
        assert!(status.code().is_some_and(|code| code < 100), "{words}: {status:?}");
        let mut child = Command::new(BIN)
            .args(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        let code = child.wait().unwrap().code();
        assert!(code.is_some_and(|code| code < 100), "{words}: {code:?}");
        // A reader that has enough, as `head`, is no failure.
        if (asks && words != "reload") || words == "man" {
            let mut child = Command::new(BIN).args(&args).stdout(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            assert_eq!(child.wait().unwrap().code(), Some(0), "{words}");
        }
    }
    running.end();
}

#[test]
fn what_goes_on_ends_with_its_reader_and_a_full_disk_stops_a_report() {
    if !may() {
        return;
    }
    let running = Instance::start("readers", &HOST);
    let socket = running.socket();
    let socket = socket.to_str().unwrap();
    // What goes on until it is interrupted ends with its reader.
    for words in ["top", "stat --watch", "top --json", "stat --watch --json"] {
        let mut child = Command::new(BIN);
        child.args(words.split(' ')).args(["--socket", socket]).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{words}");
    }
    // A report that fits on no disk.
    let page = running.folder.0.join("page");
    std::fs::create_dir_all(&page).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs {0} && exec {BIN} lab header-pull --quick --report {0}",
        page.display()
    );
    let mut alone = Command::new("unshare");
    let output = alone.args(["--mount", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    running.end();
}
