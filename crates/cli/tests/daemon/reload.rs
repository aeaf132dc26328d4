//! The configuration read again while the built command runs, its signals, and what it tells
//! systemd.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{BIN, Folder, Instance, may};
use rustix::process::Signal;
use serde_json::Value;

const FILE: &str = "\
[[interface]]
device = \"tap:fw0\"
mac = \"02:00:00:00:00:02\"
address = [\"10.0.0.2/24\", \"fd00::2/64\"]
gateway = [\"10.0.0.1\", \"fd00::1\"]
[[service]]
kind = \"udp-echo\"
port = 7001
[[service]]
kind = \"http\"
port = 80
";

/// An instance with its file, which a test may write again.
struct Running {
    instance: Instance,
    file: Folder,
}

fn start(name: &str) -> Running {
    let file = Folder::new(&format!("{name}-file"));
    let path = file.0.join("fw.toml");
    std::fs::write(&path, FILE).unwrap();
    let notify = file.0.join("notify");
    let args = ["--config", path.to_str().unwrap()];
    let envs = [("NOTIFY_SOCKET", notify.to_str().unwrap())];
    Running { instance: Instance::start_after(name, "true", &args, &envs), file }
}

impl Running {
    fn write(&self, text: &str) {
        std::fs::write(self.file.0.join("fw.toml"), text).unwrap();
    }

    fn reload(&self) -> (Option<i32>, String) {
        let output = self.instance.ask(&["reload"]);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    fn addresses(&self) -> Vec<String> {
        let json = self.instance.json(&["stat", "--json"]);
        let all = json["devices"][0]["addr_info"].as_array().unwrap();
        all.iter().map(|a| a["local"].as_str().unwrap().to_owned()).collect()
    }

    fn gateways(&self, family: &str) -> Vec<String> {
        let mut command = Command::new(BIN);
        command.args(["route", "-j", "--socket"]).arg(self.instance.socket());
        command.args([family, "show"]);
        let json: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let all = json.as_array().into_iter().flatten();
        all.filter_map(|route| route["gateway"].as_str().map(str::to_owned)).collect()
    }

    fn end(self) -> String {
        self.instance.end()
    }
}

#[test]
fn a_reload_changes_addresses_routes_and_services_and_names_the_rest() {
    if !may() {
        return;
    }
    let running = start("reload");
    assert_eq!(running.reload(), (Some(0), "nothing has changed\n".to_owned()));
    let new = FILE
        .replace("10.0.0.2/24", "10.0.0.9/24")
        .replace("fd00::2/64", "fd00::9/64")
        .replace("10.0.0.1", "10.0.0.3")
        .replace("fd00::1\"", "fd00::3\"")
        .replace("mac =", "access = [\"deny udp dport 9\"]\nmtu = 1400\nmac =")
        .replace("7001", "7002");
    running.write(&new);
    let (code, said) = running.reload();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("services closed: udp-echo:7001; opened: udp-echo:7002"), "{said}");
    assert!(said.contains("fw0: access list of 1 rules"), "{said}");
    assert!(said.contains("needs a restart: interface fw0: mtu"), "{said}");
    let has = running.addresses();
    assert!(has.contains(&"10.0.0.9".to_owned()) && has.contains(&"fd00::9".to_owned()));
    assert!(!has.contains(&"10.0.0.2".to_owned()) && !has.contains(&"fd00::2".to_owned()));
    assert_eq!(running.gateways("-4"), ["10.0.0.3"]);
    assert_eq!(running.gateways("-6"), ["fd00::3"]);
    // What waits for a restart is named again; what was done is done.
    let (_, said) = running.reload();
    assert_eq!(said, "needs a restart: interface fw0: mtu\n");
    running.end();
}

#[test]
fn a_file_that_is_wrong_or_missing_changes_nothing_and_says_why() {
    if !may() {
        return;
    }
    let running = start("broken");
    let has = running.addresses();
    for text in ["[[interface]\n", "bogus = 1\n", &FILE.replace("10.0.0.2/24", "10.0.0.0/24")] {
        running.write(text);
        let (code, said) = running.reload();
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("fw.toml:"), "the place is named: {said}");
        assert_eq!(running.addresses(), has);
    }
    // The table refuses the last step: all before it are taken back.
    running.write(
        &FILE
            .replace("10.0.0.2/24", "10.0.0.9/24")
            .replace("mac =", "route = [\"192.0.2.0/24 via fe80::1\"]\nmac ="),
    );
    let (code, said) = running.reload();
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(running.addresses(), has, "{said}");
    std::fs::remove_file(running.file.0.join("fw.toml")).unwrap();
    let (code, said) = running.reload();
    assert!(code == Some(2) && said.contains("cannot be read"), "{said}");
    assert_eq!(running.addresses(), has);
    running.write(FILE);
    assert_eq!(running.reload(), (Some(0), "nothing has changed\n".to_owned()));
    let said = running.end();
    assert!(said.contains("not reloaded: what ran goes on"), "{said}");
}

#[test]
fn hangups_reload_user_signals_never_kill_and_systemd_is_told() {
    if !may() {
        return;
    }
    let folder = Folder::new("signals-file");
    let manager = UnixDatagram::bind(folder.0.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let hear = || {
        let mut text = [0; 512];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..len].to_vec()).unwrap()
    };
    let running = start("signals");
    assert!(hear().starts_with("READY=1\n"));
    running.instance.signal(Signal::USR1);
    running.instance.signal(Signal::USR2);
    running.write(&FILE.replace("10.0.0.2/24", "10.0.0.9/24"));
    running.instance.signal(Signal::HUP);
    assert!(hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(hear().starts_with("READY=1\n"), "ready again");
    assert!(running.addresses().contains(&"10.0.0.9".to_owned()));
    let said = running.end();
    assert_eq!(hear(), "STOPPING=1");
    assert!(said.contains("floodwall: running for "), "SIGUSR1 reports the counts: {said}");
}

#[test]
fn reloads_under_flood_lose_no_request() {
    if !may() {
        return;
    }
    let running = start("flood");
    running.instance.give_peer();
    // Room for a second of the flood: where other programs have the cores, the kernel drops no
    // request before it reaches us.
    running.instance.beside("ip link set fw0 txqueuelen 65536");
    static DONE: AtomicBool = AtomicBool::new(false);
    // Datagrams to a port without a socket, as many as one thread can send in bursts.
    let flood = running.instance.within(|| {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        let mut sent = 0_u64;
        while !DONE.load(Ordering::Relaxed) && sent < 5_000_000 {
            for _ in 0..64 {
                let _ = socket.send_to(b"flood", "10.0.0.2:9");
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    });
    let honest = running.instance.within(|| {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.connect("10.0.0.2:7001").unwrap();
        let (mut asked, mut lost) = (0_u64, 0_u64);
        let mut room = [0; 64];
        while !DONE.load(Ordering::Relaxed) && asked < 1_000_000 {
            asked += 1;
            socket.send(&asked.to_be_bytes()).unwrap();
            let answered = socket.recv(&mut room).is_ok_and(|n| room[..n] == asked.to_be_bytes());
            lost += u64::from(!answered);
        }
        (asked, lost)
    });
    let texts = [
        FILE.replace("mac =", "access = [\"deny udp dport 11\"]\nmac ="),
        FILE.replace("fd00::2/64\"", "fd00::2/64\", \"10.0.0.7/24\""),
        FILE.to_owned() + "[[service]]\nkind = \"udp-discard\"\nport = 7009\n",
        FILE.to_owned() + "[[service]]\nkind = \"tcp-echo\"\nport = 7010\n",
        "broken".to_owned(),
        FILE.to_owned(),
    ];
    let mut refused = 0;
    let turns = std::env::var("FLOODWALL_RELOADS").ok().and_then(|n| n.parse().ok());
    for turn in 0..turns.unwrap_or(1000_usize) {
        running.write(&texts[turn % texts.len()]);
        let mut stream =
            std::os::unix::net::UnixStream::connect(running.instance.socket()).unwrap();
        let mut answer = String::new();
        std::io::Write::write_all(&mut stream, b"reload\n").unwrap();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        refused += u32::from(answer.contains("error"));
        assert!(answer.contains("error") == (turn % texts.len() == 4), "{turn}: {answer}");
    }
    DONE.store(true, Ordering::Relaxed);
    let (sent, (asked, lost)) = (flood.join().unwrap(), honest.join().unwrap());
    assert!(sent > 1000 && asked > 100, "{sent} flooded, {asked} asked");
    assert_eq!(lost, 0, "of {asked} requests during the reloads ({refused} refused)");
    eprintln!("{asked} requests answered, {sent} flooded, {refused} reloads refused");
    running.write(FILE);
    running.end();
}
