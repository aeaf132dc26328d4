//! A DNS server on a flooded port, queried by `dnsperf` (Debian has it) from one network namespace
//! while ten addresses of each family in another flood it with ten times what it can answer: our
//! socket with fair drop, without, and the kernel's socket, in one run. All results are printed;
//! the only assertion is that fair drop serves legitimate clients of both families better than
//! none.
//!
//! Root and `dnsperf` are needed; `FLOODWALL_DEEP=1` runs for longer. Everything stays in four
//! namespaces that it makes and removes; it ends every process that it starts by its pid.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]
#![expect(clippy::disallowed_methods, reason = "the kernel's sockets are what is compared with")]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What one answer costs the server, in microseconds: 2,000 a second at most.
const WORK: &str = "500";
/// Questions a second of the flood of each family.
const FLOOD: &str = "10000";
/// Our address of each family, and what the others' begin with.
const OURS: [(&str, &str); 2] = [("10.99.0.1/24", "10.99.0."), ("fd99::1/64", "fd99::")];

/// Whether it may take long.
fn is_deep() -> bool {
    std::env::var_os("FLOODWALL_DEEP").is_some_and(|deep| deep != "0")
}

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
        for (ours, start) in OURS {
            let (_, length) = ours.split_once('/').unwrap();
            let add = |end: &str, n: u32| {
                // The kernel probes addresses of its own; there is no other host.
                let nodad = if start.contains(':') { "nodad" } else { "" };
                run(&format!("ip -n {end} addr add {start}{n}/{length} dev eth0 {nodad}"))
            };
            fine = fine && add(client, 2) && (100..110).all(|n| add(flood, n));
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

/// Share answered in hundredths, and average latency in milliseconds.
type Seen = (f64, f64);

/// The results of `dnsperf` for each family, run for both at once.
fn ask(net: &Net, server: &mut Command) -> [Seen; 2] {
    let mut server = Process(server.stdout(Stdio::piped()).spawn().expect("the server starts"));
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "serving");
    let questions = std::env::temp_dir().join(format!("fwdns{}", std::process::id()));
    std::fs::write(&questions, "one.example A\ntwo.example AAAA\n").unwrap();
    let dnsperf = |(ours, _): (&str, &str), limit: [&str; 2]| {
        let (ours, _) = ours.split_once('/').unwrap();
        let mut dnsperf = net.command(2, "dnsperf");
        dnsperf.args(["-s", ours, "-Q", "50", "-T", "1", "-c", "1", "-t", "1"]).args(limit);
        dnsperf.arg("-d").arg(&questions).stdout(Stdio::piped()).stderr(Stdio::null());
        Process(dnsperf.spawn().expect("dnsperf runs"))
    };
    // Neighbours are found, and our addresses used, before it begins.
    let answered = || OURS.iter().all(|ours| said(dnsperf(*ours, ["-n", "1"])).0 > 0.0);
    assert!((0..40).any(|_| answered()), "it never answers");
    let floods = OURS.map(|(ours, start)| {
        let (ours, _) = ours.split_once('/').unwrap();
        let to = if ours.contains(':') { format!("[{ours}]:53") } else { format!("{ours}:53") };
        let sources = (100..110).map(|n| format!("{start}{n}"));
        let mut flood = net.command(3, example().to_str().unwrap());
        flood.args(["flood", &to, FLOOD, "60"]).args(sources).stdout(Stdio::null());
        Process(flood.spawn().expect("the flood starts"))
    });
    std::thread::sleep(Duration::from_millis(500));
    let length = if is_deep() { "6" } else { "1" };
    let seen = OURS.map(|ours| dnsperf(ours, ["-l", length])).map(said);
    drop(floods);
    let _ = std::fs::remove_file(questions);
    seen
}

/// What one `dnsperf` saw.
fn said(mut dnsperf: Process) -> Seen {
    let mut text = String::new();
    dnsperf.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
        line.split_whitespace().find_map(|word| word.parse::<f64>().ok())
    };
    let [sent, answered, latency] = ["Queries sent", "Queries completed", "Average Latency"]
        .map(|name| of(name).unwrap_or(0.0));
    (100.0 * answered / sent.max(1.0), 1000.0 * latency)
}

#[test]
fn honest_questions_are_answered_while_ten_addresses_flood_the_port() {
    if !PathBuf::from("/usr/bin/dnsperf").exists() {
        return eprintln!("SKIPPED: there is no dnsperf");
    }
    let program = example();
    let program = program.to_str().unwrap();
    let addresses = OURS.map(|(ours, _)| ours).join(",");
    let mut seen = Vec::new();
    for word in ["fair", "plain", "kernel"] {
        // A network of its own for each: no state of an earlier run.
        let Some(net) = Net::new() else { return eprintln!("SKIPPED: no network namespaces") };
        let mut server = net.command(1, program);
        if word == "kernel" {
            for (ours, _) in OURS {
                let add = format!("ip -n {} addr add {ours} dev eth0", net.names[1]);
                assert!(run(&add) || run(&format!("{add} nodad")), "{add}");
            }
            server.args(["kernel", "[::]:53", WORK]);
        } else {
            server.args(["serve", "packet:eth0", &addresses, word, WORK]);
        }
        seen.push(ask(&net, &mut server));
    }
    println!("{:24} {:>12} {:>12} {:>12} {:>12}", "socket", "IPv4, %", "ms", "IPv6, %", "ms");
    for (name, [v4, v6]) in ["ours, fair drop", "ours, drop-tail", "the kernel's"].iter().zip(&seen)
    {
        println!("{name:24} {:12.1} {:12.2} {:12.1} {:12.2}", v4.0, v4.1, v6.0, v6.1);
    }
    for family in 0..2 {
        assert!(seen[0][family].0 > seen[1][family].0, "fair drop serves honest clients: {seen:?}");
    }
}
