//! What an operator sees of the built command under a flood: `stat --watch`, `top`, `explain`,
//! `socket show`, metrics; and clients of the control socket that never read.
//!
//! Needs root, for a network namespace and the TAP; reports that it was skipped elsewhere.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Instance, may};

/// An instance on a TAP. The kernel's side has 10.0.0.1 and fd00::1.
fn start(name: &str) -> Instance {
    let services = ["--metrics=127.0.0.1:9100", "--service=udp-echo:7001", "--service=http:80"];
    Instance::start_with_peer(name, &services)
}

#[test]
fn a_flood_is_seen_and_explained_and_nothing_is_claimed_at_rest() {
    if !may() {
        return;
    }
    let running = start("seen");
    let rest = running.json(&["explain", "--seconds", "1", "--json"]);
    assert_eq!(rest["verdict"], "fine: nothing is wrong", "{rest}");
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    // Datagrams to a port without a socket: bounded in number.
    let flood = running.within(move || {
        let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
        for _ in 0..40_000 {
            for _ in 0..32 {
                let _ = socket.send_to(b"flood", "10.0.0.2:9");
            }
            let _ = socket.send_to(b"ask", "10.0.0.2:7001");
            if over.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let said = running.json(&["explain", "--seconds", "2", "--json"]);
    let first = &said["findings"][0];
    assert_eq!(
        (&first["kind"], &first["name"]),
        (&"attack".into(), &"flood of closed ports".into())
    );
    let heaviest = &said["sources"][0];
    assert_eq!(heaviest["prefix"], "10.0.0.0/24", "{said}");
    assert!(heaviest["share"].as_f64().unwrap() > 0.5, "{said}");
    assert!(first["evidence"][0].as_str().unwrap().starts_with("UdpNoPort "), "{said}");
    let text = running.text(&["explain", "--seconds", "1"]);
    assert!(text.starts_with("attack: flood of closed ports"), "{text}");
    let top = running.json(&["top", "-n", "1", "--json"]);
    assert_eq!(top["interfaces"][0]["first_line"], "none", "{top}");
    assert!(top["interfaces"][0]["in_packets"].as_f64().unwrap() > 200.0, "{top}");
    assert_eq!(top["refusals"][0]["reason"], "UdpNoPort", "{top}");
    let services = top["services"].as_array().unwrap();
    let echo = services.iter().find(|it| it["local"] == "[::]:7001").unwrap();
    assert!(echo["datagrams"].as_f64().unwrap() > 10.0 && echo["opened"].is_null(), "{top}");
    let text = running.text(&["top", "-n", "1"]);
    assert!(text.contains("\nSERVICE") && text.contains("tcp [::]:80"), "{text}");
    let said = running.wait_said("flood begins: flood of closed ports, ");
    assert_eq!(said.matches("flood begins").count(), 1, "{said}");
    assert!(said.contains(" WARN floodwall: flood begins"), "{said}");
    let said = running.json(&["explain", "--seconds", "1", "--json"]);
    let first = &said["findings"][0];
    assert!(first["since_seconds"].as_f64().unwrap() >= 1.0, "{said}");
    assert!(first["refused"].as_u64().unwrap() > 200, "{said}");
    let text = running.text(&["explain", "--seconds", "1"]);
    for part in [" UTC, for ", "  from      10.0.0.0/24 ", "  costs     ", "  clients   "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    done.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    let said = running.wait_said("flood ended: flood of closed ports after ");
    assert!(said.contains(" refused; "), "{said}");
    let rest = running.json(&["explain", "--seconds", "1", "--json"]);
    assert_eq!(rest["verdict"], "fine: nothing is wrong", "{rest}");
}

#[test]
fn connections_of_both_families_are_shown_in_the_columns_of_ss() {
    if !may() {
        return;
    }
    let running = start("sockets");
    let clients = running.within(|| {
        let open = |at: &str| {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.write_all(b"GET /bytes/1000 HTTP/1.1\r\n\r\n").unwrap();
            let mut room = [0; 2000];
            assert!(stream.read(&mut room).unwrap() > 0);
            stream
        };
        (open("10.0.0.2:80"), open("[fd00::2]:80"))
    });
    let (v4, v6) = clients.join().unwrap();
    let text = running.text(&["socket", "show", "-tani"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..4], ["Netid", "State", "Recv-Q", "Send-Q"]);
    let row = |local: &str| rows.iter().find(|row| row.get(4) == Some(&local)).unwrap().clone();
    assert_eq!(row("*:80")[1], "LISTEN");
    let ours = |stream: &TcpStream| stream.local_addr().unwrap().to_string();
    assert_eq!((row("10.0.0.2:80")[1], row("10.0.0.2:80")[5]), ("ESTAB", ours(&v4).as_str()));
    assert_eq!((row("[fd00::2]:80")[1], row("[fd00::2]:80")[5]), ("ESTAB", ours(&v6).as_str()));
    assert!(text.contains(" rto:") && text.contains(" cwnd:"), "{text}");
    let json = running.json(&["socket", "show", "-t6", "--json"]);
    let all = json["sockets"].as_array().unwrap();
    assert!(all.len() == 1 && all[0]["local"] == "[fd00::2]:80", "{json}");
    // `--socket` at every place of every command.
    let path = running.socket().to_str().unwrap().to_owned();
    for words in [
        "stat",
        "stat --json",
        "address show",
        "link show",
        "neigh show",
        "route show",
        "rule show",
        "route -4 show table all",
        "top -n 1",
        "explain --seconds 1",
        "socket show -ta",
        "reload",
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        for place in 0..=words.len() {
            let mut args = words.clone();
            args.splice(place..place, ["--socket", &path]);
            let output = Command::new(crate::support::BIN).args(&args).output().unwrap();
            let reload = words[0] == "reload";
            assert!(output.status.success() || reload, "{args:?}: {output:?}");
            assert!(output.status.code() != Some(1) && output.status.code() != Some(3), "{args:?}");
        }
    }
    let udp = running.text(&["socket", "show", "-ul"]);
    assert!(udp.lines().count() == 2 && udp.contains("UNCONN") && udp.contains("*:7001"), "{udp}");
}

#[test]
fn metrics_are_served_and_clients_that_never_read_harm_no_others() {
    if !may() {
        return;
    }
    let running = start("metrics");
    let served = running.within(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9100").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let served = served.join().unwrap();
    assert!(served.starts_with("HTTP/1.1 200 OK\r\n"), "{served}");
    assert!(served.contains("\nfloodwall_conservation_holds 1\n"), "{served}");
    let text = running.text(&["stat", "--prometheus"]);
    match Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::process::Stdio::piped())
        .spawn()
    {
        Err(_) => eprintln!("skipped: promtool (Debian: prometheus) is not installed"),
        Ok(mut promtool) => {
            promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            assert!(promtool.wait().unwrap().success(), "{text}");
        }
    }
    // A hundred clients that ask and never read, and some that never ask.
    let deaf: Vec<_> = (0..100)
        .map(|n| {
            let mut stream = UnixStream::connect(running.socket()).unwrap();
            if n % 2 == 0 {
                stream.write_all(b"sockets\n").unwrap();
            }
            stream
        })
        .collect();
    assert!(text.len() > 1000);
    // Clients behind them are answered once these are cut off.
    let mut answered = false;
    for _ in 0..6 {
        answered |= running.ask(&["stat"]).status.success();
    }
    assert!(answered);
    drop(deaf);
    running.text(&["stat"]);
}

/// The body of an answer of the Prometheus API, asked in the network namespace.
fn api(path: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect("127.0.0.1:9090").ok()?;
    write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn a_real_prometheus_scrapes_and_its_rules_and_the_dashboards_queries_are_answered() {
    if !may() {
        return;
    }
    let contrib = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib");
    let rules = format!("{contrib}/prometheus/floodwall.rules.yml");
    let Ok(checked) = Command::new("promtool").args(["check", "rules", &rules]).output() else {
        return eprintln!("skipped: promtool (Debian: prometheus) is not installed");
    };
    assert!(checked.status.success(), "{checked:?}");
    let running = start("prometheus");
    let folder = running.folder.0.clone();
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{rules:?}]\n\
         scrape_configs:\n- job_name: floodwall\n  static_configs: [{{ targets: \
         ['127.0.0.1:9100'] }}]\n"
    );
    std::fs::write(folder.join("prometheus.yml"), config).unwrap();
    let pid = running.child.id().to_string();
    let mut prometheus = Command::new("nsenter")
        .args(["-t", &pid, "-n", "prometheus", "--web.listen-address=127.0.0.1:9090"])
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .stderr(std::fs::File::create(folder.join("prometheus.log")).unwrap())
        .spawn()
        .unwrap();
    let dashboard = std::fs::read_to_string(format!("{contrib}/grafana/floodwall.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<String> = targets
        .map(|target| target["expr"].as_str().unwrap().replace("$instance", ".*"))
        .map(|query| query.replace("$__rate_interval", "10s"))
        .collect();
    let answered = running.within(move || {
        let is_up = |query: &str| {
            let answer = api(&format!("query?query={query}"));
            answer.is_some_and(|answer| answer["data"]["result"][0]["value"][1] == "1")
        };
        let up = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            is_up("floodwall_conservation_holds") && is_up("up")
        });
        // Rates need several scrapes.
        std::thread::sleep(Duration::from_secs(4));
        let encode =
            |query: &str| -> String { query.bytes().map(|byte| format!("%{byte:02x}")).collect() };
        let empty: Vec<String> = queries
            .into_iter()
            .filter(|query| {
                let answer = api(&format!("query?query={}", encode(query))).unwrap_or_default();
                answer["data"]["result"].as_array().is_none_or(Vec::is_empty)
            })
            .collect();
        let scraped = api("targets").unwrap_or_default();
        (up, empty, scraped["data"]["activeTargets"][0]["lastError"].clone())
    });
    let (up, empty, error) = answered.join().unwrap();
    let _ = prometheus.kill();
    let _ = prometheus.wait();
    let log = std::fs::read_to_string(folder.join("prometheus.log")).unwrap();
    assert!(up, "{log}");
    assert_eq!(error, "", "{log}");
    // Where nothing is shared or dropped there is no such series.
    let known = ["floodwall_dropped_packets_total", "floodwall_worker_balance"];
    let empty: Vec<_> =
        empty.iter().filter(|query| !known.iter().any(|name| query.contains(name))).collect();
    assert!(empty.is_empty(), "no answer to {empty:#?}");
}

/// Nanoseconds of processor time that the threads of a process have had: the workers, all others.
fn ran(process: u32) -> (u64, u64) {
    let mut ran = (0, 0);
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten() {
        let read = |name| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let nanos = read("schedstat").split(' ').next().and_then(|n| n.parse::<u64>().ok());
        let sum = if read("comm").starts_with("worker") { &mut ran.0 } else { &mut ran.1 };
        *sum += nanos.unwrap_or(0);
    }
    ran
}

/// Runs `explain`; nanoseconds of processor time that it took.
fn explained(socket: &std::path::Path) -> u64 {
    let mut explain = Command::new(crate::support::BIN);
    explain.args(["explain", "--seconds", "2", "--json", "--socket"]).arg(socket);
    let mut explain = explain.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut took = 0;
    while explain.try_wait().unwrap().is_none() {
        took = ran(explain.id()).1.max(took);
        std::thread::sleep(Duration::from_millis(20));
    }
    took
}

/// Nanoseconds of processor time in a length of time, and the packets that came in it.
struct Took {
    workers: u64,
    others: u64,
    /// `top` and `explain`.
    tools: u64,
    packets: u64,
}

const LENGTH: Duration = Duration::from_secs(10);

/// What `LENGTH` takes: with `top` at one look a second, and `explain` and a scrape of the metrics
/// every five seconds, or without.
fn took(running: &Instance, watched: bool) -> Took {
    let packets = || {
        let stat = running.json(&["stat", "--json"]);
        stat["counters"]["IpInReceives"].as_u64().unwrap()
    };
    let seconds = LENGTH.as_secs();
    let came = packets();
    let top = watched.then(|| {
        let mut top = Command::new(crate::support::BIN);
        top.args(["top", "--json", "-n", &seconds.to_string(), "--socket"]).arg(running.socket());
        top.stdout(std::process::Stdio::null()).spawn().unwrap()
    });
    let (before, mut own, mut explains) = (ran(running.child.id()), 0, 0);
    for second in 0..seconds {
        if watched && second % 5 == 0 {
            let scrape = running.within(|| {
                let mut stream = TcpStream::connect("127.0.0.1:9100").unwrap();
                stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
            });
            scrape.join().unwrap();
        }
        // It looks for two seconds.
        match (watched, second % 5) {
            (true, 1) => explains += explained(&running.socket()),
            (true, 2) => {}
            _ => std::thread::sleep(Duration::from_secs(1)),
        }
        own = top.as_ref().map_or(0, |top| ran(top.id()).1.max(own));
    }
    let (after, packets) = (ran(running.child.id()), packets() - came);
    top.into_iter().for_each(|mut top| _ = top.wait());
    Took { workers: after.0 - before.0, others: after.1 - before.1, tools: own + explains, packets }
}

/// What watching costs in parts of a core: at the workers, at the other threads of `run`, in the
/// tools. Under a flood the workers' part is that of a packet, times the packets: a flood that is
/// faster while it is watched is no cost of watching.
fn cost(bare: &Took, watched: &Took, flooded: bool) -> [f64; 3] {
    let part = |nanos: f64| nanos / LENGTH.as_nanos() as f64 * 100.0;
    let unwatched = if flooded {
        bare.workers as f64 / bare.packets as f64 * watched.packets as f64
    } else {
        bare.workers as f64
    };
    [watched.workers as f64 - unwatched, watched.others as f64, watched.tools as f64].map(part)
}

/// `top`, `explain`, scrapes, the watch for floods and the log, all at once: medians of five turns,
/// each of a length with them and one without.
#[test]
fn watching_costs_at_most_a_hundredth_of_a_core() {
    if !may() || std::env::var_os("FLOODWALL_DEEP").is_none_or(|deep| deep == "0") {
        eprintln!("skipped: FLOODWALL_DEEP=1 runs it, as root");
        return;
    }
    let running = start("cost");
    for flooded in [false, true] {
        let done = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&done);
        let flood = running.within(move || {
            let socket = UdpSocket::bind("10.0.0.1:0").unwrap();
            while flooded && !over.load(Ordering::Relaxed) {
                (0..64).for_each(|_| _ = socket.send_to(b"flood", "10.0.0.2:9"));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::thread::sleep(Duration::from_secs(3));
        let words = if flooded { "under flood" } else { "at rest" };
        let mut turns = Vec::new();
        for turn in 0..5 {
            let (bare, watched) = (took(&running, false), took(&running, true));
            let cost = cost(&bare, &watched, flooded);
            let [workers, others, tools] = cost;
            let per_packet = |took: &Took| took.workers / took.packets.max(1);
            eprintln!(
                "{words}, turn {turn}: workers {workers:.3} %, other threads {others:.3} %, top \
                 and explain {tools:.3} % of a core; {} packets, {} ns each, watched {} and {} ns",
                bare.packets,
                per_packet(&bare),
                watched.packets,
                per_packet(&watched),
            );
            turns.push(cost.iter().sum::<f64>());
        }
        turns.sort_by(f64::total_cmp);
        eprintln!("{words}: {:.3} % of a core", turns[2]);
        done.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        assert!(turns[2] <= 1.0, "{words}: {turns:.3?} % of a core");
    }
}
