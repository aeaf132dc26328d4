//! `floodwall top` on a terminal: a pseudo-terminal of util-linux's `script`, looked at by `stty`.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{BIN, HOST, Instance, may};
use rustix::process::{Pid, Signal, kill_process};

/// Lines and columns of the terminal at first.
const SIZE: (u16, u16) = (30, 100);

/// `top` in a shell on a terminal of its own.
struct Terminal {
    script: Child,
    keys: Option<std::process::ChildStdin>,
    shown: PathBuf,
}

impl Terminal {
    /// `None`, and said so, where there is no `script`.
    fn start(running: &Instance, name: &str) -> Option<Self> {
        let shown = running.folder.0.join(name);
        let (lines, columns) = SIZE;
        // The shell stays, so that the terminal can be looked at afterwards.
        let words = format!(
            "trap : INT; stty rows {lines} cols {columns}; stty -g; echo; {BIN} top --socket {}; \
             echo \"ended $?\"; stty -g",
            running.socket().display()
        );
        let script = Command::new("script")
            .args(["-q", "-e", "-c", &words, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(File::create(&shown).unwrap())
            .spawn();
        let Ok(mut script) = script else {
            eprintln!("skipped: script (Debian: bsdutils) is not installed");
            return None;
        };
        let keys = script.stdin.take();
        Some(Self { script, keys, shown })
    }

    /// Waits until the terminal has been sent what satisfies this.
    fn wait(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        for _ in 0..1500 {
            let text = self.text();
            if is_there(&text) {
                return text;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("no {what}: {:?}", self.text());
    }

    /// All that the terminal was sent.
    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.shown).unwrap()).into_owned()
    }

    /// The process id of `top`.
    fn top(&self) -> u32 {
        let mut all = vec![self.script.id()];
        loop {
            let pid = *all.last().unwrap();
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            let Some(child) = children.split_whitespace().next() else { return pid };
            all.push(child.parse().unwrap());
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.top()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn resize(&self, lines: usize, columns: usize) {
        let terminal = format!("/proc/{}/fd/0", self.top());
        let mut stty = Command::new("stty");
        stty.args(["-F", &terminal, "rows", &lines.to_string(), "cols", &columns.to_string()]);
        assert!(stty.status().unwrap().success());
        self.signal(Signal::WINCH);
    }

    /// The modes of the terminal now.
    fn modes(&self) -> String {
        let mut stty = Command::new("stty");
        let output = stty.args(["-F", &format!("/proc/{}/fd/0", self.top()), "-a"]).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Waits for the end; how `top` ended, and that the terminal is as before.
    fn ended(mut self) -> i32 {
        self.wait("end", |text| text.contains("ended "));
        self.script.wait().unwrap();
        let text = self.text();
        assert!(text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h"), "a screen: {text:?}");
        assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "a cursor: {text:?}");
        let modes: Vec<_> = text.lines().filter(|line| line.matches(':').count() > 20).collect();
        assert!(modes.len() == 2 && modes[0] == modes[1], "{modes:?}");
        let (_, code) = text.split_once("ended ").unwrap();
        code.lines().next().unwrap().trim().parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Behind each picture.
const DRAWN: &str = "\x1b[?2026l";

/// What the terminal shows once it has been sent this, up to the last whole picture. It has another
/// size from some byte on.
fn picture(text: &str, (from, lines, columns): (usize, u16, u16)) -> Vec<String> {
    let whole = text.rfind(DRAWN).map_or(0, |at| at + DRAWN.len());
    let (before, after) = text.as_bytes()[..whole].split_at(from.min(whole));
    let mut terminal = vt100::Parser::new(SIZE.0, SIZE.1, 0);
    terminal.process(before);
    terminal.screen_mut().set_size(lines, columns);
    terminal.process(after);
    terminal.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
}

/// Pictures that were drawn.
fn pictures(text: &str) -> usize {
    text.matches(DRAWN).count()
}

#[test]
fn top_has_keys_follows_the_size_and_sets_the_terminal_back_however_it_ends() {
    if !may() {
        return;
    }
    let running = Instance::start("terminal", &HOST);
    let Some(terminal) = Terminal::start(&running, "q") else { return };
    let is_whole =
        |text: &str| picture(text, (0, SIZE.0, SIZE.1)).iter().any(|row| row.starts_with("WORKER"));
    let text = terminal.wait("picture", is_whole);
    let rows = picture(&text, (0, SIZE.0, SIZE.1));
    assert!(rows[0].starts_with("floodwall top, up ") && rows[0].ends_with("space looks"));
    assert!(rows.iter().any(|row| row.starts_with("in ") && row.contains("refused ")), "{rows:?}");
    assert!(text.contains("\x1b[38;5;") || text.contains("\x1b[3"), "colours: {text:?}");
    // Nothing is asked of the terminal: its answer would come among the keys.
    assert!(!text.contains("\x1b[6n"), "{text:?}");
    assert!(terminal.modes().contains("-icanon") && terminal.modes().contains("-echo "));
    // A smaller terminal is drawn at once.
    let from = text.len();
    terminal.resize(5, 30);
    let text = terminal.wait("small picture", |text| {
        let rows = picture(text, (from, 5, 30));
        let is_cleared = rows.iter().all(|row| !row.contains("FIRST LINE"));
        text.len() > from && is_cleared && rows[1].starts_with("fine")
    });
    let rows = picture(&text, (from, 5, 30));
    assert!(rows.len() == 5 && rows[0].starts_with("floodwall top, up "), "{rows:?}");
    // Another look at once, and keys without a meaning.
    let before = pictures(&text);
    let mut keys = terminal.keys.as_ref().unwrap();
    keys.write_all(b"\x1b[Az ").unwrap();
    terminal.wait("look", |text| pictures(text) > before);
    keys.write_all(b"q").unwrap();
    assert_eq!(terminal.ended(), 0);
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let terminal = Terminal::start(&running, &format!("signal-{code}")).unwrap();
        terminal.wait("picture", |text| text.contains("WORKER"));
        if signal == Signal::INT {
            // Stopped, it leaves the terminal as it was; continued, it takes it again.
            terminal.signal(Signal::TSTP);
            terminal.wait("leave", |text| text.contains("\x1b[?1049l"));
            let is_back = (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                terminal.modes().contains(" icanon")
            });
            assert!(is_back, "{}", terminal.modes());
            terminal.signal(Signal::CONT);
            terminal.wait("entry", |text| text.matches("\x1b[?1049h").count() > 1);
            terminal.keys.as_ref().unwrap().write_all(b"\x03").unwrap();
        } else {
            terminal.signal(signal);
        }
        assert_eq!(terminal.ended(), code);
    }
    // The instance ends: so does `top`, and says why.
    let terminal = Terminal::start(&running, "gone").unwrap();
    terminal.wait("picture", |text| text.contains("WORKER"));
    running.signal(Signal::TERM);
    let text = terminal.wait("error", |text| text.contains("no instance is reached"));
    assert!(text.rfind("\x1b[?1049l") < text.find("no instance"), "on the screen of before");
    assert_eq!(terminal.ended(), 3);
    assert_eq!(running.ended().code, Some(0));
}

/// A sequence that clears the screen, in both of its forms, and one that turns text round.
const EVIL: &str = "f\\u001b[2J\\u009b2J\\u202e";

/// Stands between a command and the instance, and gives the interface another name.
fn rename(listener: &UnixListener, instance: &std::path::Path) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).unwrap();
        let mut behind = UnixStream::connect(instance).unwrap();
        behind.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        behind.read_to_string(&mut answer).unwrap();
        let _ = stream.write_all(answer.replace("fw0", EVIL).as_bytes());
    }
}

#[test]
fn names_of_others_never_control_the_terminal() {
    if !may() {
        return;
    }
    let running = Instance::start_with_peer("names", &[]);
    let (between, instance) = (running.folder.0.join("between.sock"), running.socket());
    let listener = UnixListener::bind(&between).unwrap();
    std::thread::spawn(move || rename(&listener, &instance));
    running.beside("ping -c 1 -W 5 10.0.0.2");
    let ask = |words: &str| {
        let mut command = Command::new(BIN);
        let output = command.args(words.split(' ')).arg("--socket").arg(&between).output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let is_raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    for words in
        ["stat --all", "top -n 1", "address show", "link show", "neigh show", "socket show -ta"]
    {
        let text = ask(words);
        assert!(!text.contains(is_raw), "{words}: {text:?}");
        assert!(text.contains("f\\u{1b}[2J\\u{9b}2J") || words.starts_with("socket"), "{text}");
    }
    for words in ["stat --json", "top -n 1 --json", "address show --json", "neigh show --json"] {
        let text = ask(words);
        assert!(!text.contains(is_raw), "{words}: {text:?}");
        let _: serde_json::Value = serde_json::from_str(&text).unwrap();
    }
    let text = ask("stat --prometheus");
    assert!(!text.contains(is_raw), "{text:?}");
    running.end();
}
