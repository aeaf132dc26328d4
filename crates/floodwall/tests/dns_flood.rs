//! A DNS server on a flooded port, asked by `dnsperf` (Debian has it) from one network namespace
//! while ten addresses of another flood it with ten times what it can answer: our socket with fair
//! drop, without, and the kernel's socket, in one run. Printed beside each other; judged is only
//! that fair drop serves honest clients better than none.
//!
//! Long, and so run with `FLOODWALL_DEEP=1` alone; root and `dnsperf` are needed. Everything stays
//! in three namespaces that it makes and removes; every process it starts it ends by its number.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]
#![expect(clippy::disallowed_methods, reason = "the kernel's sockets are what is compared with")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What one answer costs the server, in microseconds: 2,000 a second at most.
const WORK: &str = "500";
/// Questions a second of the flood.
const FLOOD: &str = "20000";
/// Seconds of each run.
const LENGTH: &str = "6";

/// Three namespaces on one bridge, in a fourth.
struct Net {
    names: [String; 4],
}

fn run(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let command = words.next().unwrap_or_default();
    Command::new(command).args(words).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

impl Net {
    fn new() -> Option<Self> {
        let number = std::process::id();
        let names = ["bridge", "server", "client", "flood"].map(|n| format!("fwdns{number}{n}"));
        let net = Self { names };
        let all = net.names.iter().all(|name| run(&format!("ip netns add {name}")));
        let [bridge, ends @ ..] = &net.names;
        let mut fine = all && run(&format!("ip -n {bridge} link add br0 type bridge"));
        fine = fine && run(&format!("ip -n {bridge} link set br0 up"));
        for (n, end) in ends.iter().enumerate() {
            fine =
                fine && run(&format!(
                    "ip -n {bridge} link add p{n} type veth peer name eth0 netns {end}"
                )) && run(&format!("ip -n {bridge} link set p{n} master br0 up"))
                    && run(&format!("ip -n {end} link set eth0 up"))
                    && run(&format!("ip -n {end} link set lo up"));
        }
        let [_, _, client, flood] = &net.names;
        fine = fine && run(&format!("ip -n {client} addr add 10.99.0.2/24 dev eth0"));
        for n in 0..10 {
            fine = fine && run(&format!("ip -n {flood} addr add 10.99.0.{}/24 dev eth0", 100 + n));
        }
        fine.then_some(net)
    }

    fn command(&self, end: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], program]);
        command
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            run(&format!("ip netns del {name}"));
        }
    }
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn example() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.join("examples/dns_responder")
}

/// What `dnsperf` saw: share answered in hundredths, average latency in milliseconds.
fn ask(net: &Net, server: &mut Command) -> (f64, f64) {
    let mut server = Process(server.stdout(Stdio::piped()).spawn().expect("the server starts"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "serving");
    let questions = std::env::temp_dir().join(format!("fwdns{}", std::process::id()));
    std::fs::write(&questions, "one.example A\ntwo.example AAAA\n").unwrap();
    let sources = (0..10).map(|n| format!("10.99.0.{}", 100 + n));
    let program = example();
    let program = program.to_str().unwrap();
    let mut flood = net.command(3, program);
    flood.args(["flood", "10.99.0.1:53", FLOOD, "9"]).args(sources).stdout(Stdio::null());
    let flood = Process(flood.spawn().expect("the flood starts"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let output = net
        .command(2, "dnsperf")
        .args(["-s", "10.99.0.1", "-Q", "100", "-l", LENGTH, "-t", "1", "-d"])
        .arg(&questions)
        .output()
        .expect("dnsperf runs");
    drop(flood);
    let _ = std::fs::remove_file(questions);
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
        let words = line.split_whitespace().map(|word| word.trim_matches(['(', ')', '%']));
        Some(words.filter_map(|word| word.parse::<f64>().ok()).collect::<Vec<_>>())
    };
    let of = |name: &str| number(name).and_then(|n| n.first().copied()).unwrap_or(0.0);
    let (sent, answered) = (of("Queries sent"), of("Queries completed"));
    (100.0 * answered / sent.max(1.0), 1000.0 * of("Average Latency"))
}

#[test]
fn honest_questions_are_answered_while_ten_addresses_flood_the_port() {
    if std::env::var_os("FLOODWALL_DEEP").is_none_or(|deep| deep == "0") {
        return eprintln!("SKIPPED: half a minute; FLOODWALL_DEEP=1 runs it");
    }
    if !run("dnsperf -h") && !PathBuf::from("/usr/bin/dnsperf").exists() {
        return eprintln!("SKIPPED: there is no dnsperf");
    }
    let Some(net) = Net::new() else { return eprintln!("SKIPPED: no network namespaces") };
    let program = example();
    let program = program.to_str().unwrap();
    let mut seen = Vec::new();
    for word in ["fair", "plain"] {
        let mut server = net.command(1, program);
        seen.push(ask(&net, server.args(["serve", "packet:eth0", "10.99.0.1/24", word, WORK])));
    }
    assert!(run(&format!("ip -n {} addr add 10.99.0.1/24 dev eth0", net.names[1])));
    let mut server = net.command(1, program);
    seen.push(ask(&net, server.args(["kernel", "10.99.0.1:53", WORK])));
    println!("{:24} {:>12} {:>14}", "socket", "answered, %", "latency, ms");
    for (name, (answered, latency)) in
        ["ours, fair drop", "ours, drop-tail", "the kernel's"].iter().zip(&seen)
    {
        println!("{name:24} {answered:12.1} {latency:14.2}");
    }
    assert!(seen[0].0 > seen[1].0, "fair drop serves honest clients better: {seen:?}");
}
