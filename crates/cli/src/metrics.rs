//! A report as metrics: Prometheus' text format, and OpenMetrics.
//!
//! Used by `stat --prometheus` and by the metrics server of `run`. Invariants: names have the base
//! units (seconds, bytes), counters end in `_total` and never fall while the process runs, states
//! are gauges; every family has HELP and TYPE, and stands together; label values are escaped, so
//! that no name can end a line.

mod format;
mod server;

pub(crate) use self::format::MetricsFormat;
pub(crate) use self::server::serve;

use std::fmt::Write as _;

use floodwall_base::Counter;
use floodwall_dispatch::{TURN_BUCKETS, WorkerCounter};

use crate::rates;
use crate::report::RunReport;

/// The document under way.
struct MetricsText {
    out: String,
    format: MetricsFormat,
}

/// One sample: labels and value.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl MetricsText {
    /// Begins a family; `unit` is empty where it has none.
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let open = self.format == MetricsFormat::OpenMetrics;
        let suffix = if kind == "counter" && !open { "_total" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "# HELP {name}{suffix} {}", help.trim_end_matches('.'));
        let _ = writeln!(self.out, "# TYPE {name}{suffix} {kind}");
        if open && !unit.is_empty() {
            let _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.out.push_str(name);
        for (at, (key, text)) in labels.iter().enumerate() {
            let _ = write!(self.out, "{}{key}=\"", if at == 0 { '{' } else { ',' });
            for c in text.chars() {
                match c {
                    '\\' => self.out.push_str("\\\\"),
                    '"' => self.out.push_str("\\\""),
                    '\n' => self.out.push_str("\\n"),
                    c => self.out.push(c),
                }
            }
            self.out.push('"');
        }
        let _ = writeln!(self.out, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// The samples of one histogram: upper bounds in seconds with their own counts, the rest, the
    /// sum.
    fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        buckets: &[(f64, u64)],
        (over, sum): (u64, f64),
    ) {
        let mut total = 0;
        let infinite = (f64::INFINITY, over);
        for (bound, count) in buckets.iter().chain([&infinite]) {
            total += count;
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&format!("{name}_bucket"), &labels, total as f64);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, total as f64);
    }

    /// A family with one sample.
    fn single(&mut self, name: &str, (kind, unit): (&str, &str), help: &str, value: f64) {
        self.family(name, kind, unit, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        self.sample(&format!("{name}{suffix}"), &[], value);
    }
}

/// The whole document.
pub(crate) fn text(report: &RunReport, format: MetricsFormat) -> String {
    let mut it = MetricsText { out: String::with_capacity(64 << 10), format };
    it.family("floodwall_build_info", "gauge", "", "The version of the running program");
    it.sample("floodwall_build_info", &[("version", &report.version)], 1.0);
    let up = report.uptime_ns as f64 / 1e9;
    it.single(
        "floodwall_uptime_seconds",
        ("gauge", "seconds"),
        "Time since the workers started",
        up,
    );
    let holds = f64::from(u8::from(report.conservation.holds));
    let help = "Whether every packet is accounted for exactly once";
    it.single("floodwall_conservation_holds", ("gauge", ""), help, holds);
    it.single(
        "floodwall_received_packets",
        ("counter", "packets"),
        "Packets that arrived at the stack",
        report.conservation.arrived as f64,
    );
    counters(&mut it, report);
    drops(&mut it, report);
    devices(&mut it, report);
    workers(&mut it, report);
    services(&mut it, report);
    reclamation(&mut it, report);
    if format == MetricsFormat::OpenMetrics {
        it.out.push_str("# EOF\n");
    }
    it.out
}

/// `IpInOctets` as `ip_in_bytes`.
fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    let chars: Vec<char> = name.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            out.push('_');
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let lower_before = before.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let ends_run = before.is_some_and(char::is_ascii_uppercase)
            && chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (lower_before || ends_run) {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out.replace("octets", "bytes").replace("__", "_")
}

fn unit_of(name: &str) -> &'static str {
    if name.ends_with("_bytes") { "bytes" } else { "" }
}

fn counters(it: &mut MetricsText, report: &RunReport) {
    for counter in Counter::ALL {
        let snake = snake(counter.name());
        let snake = snake.strip_prefix("floodwall_").unwrap_or(&snake);
        let name = format!("floodwall_{snake}");
        let value = report.counters.get(counter.name()).copied().unwrap_or(0) as f64;
        it.single(&name, ("counter", unit_of(&name)), counter.sentence(), value);
    }
}

fn drops(it: &mut MetricsText, report: &RunReport) {
    let name = "floodwall_dropped_packets";
    it.family(name, "counter", "packets", "Packets dropped, by direction and reason");
    for drop in &report.drops {
        let labels = [("direction", drop.direction.as_str()), ("reason", drop.reason.as_str())];
        it.sample("floodwall_dropped_packets_total", &labels, drop.count as f64);
    }
}

fn devices(it: &mut MetricsText, report: &RunReport) {
    // The same interface has a line for each queue.
    let mut queues = Vec::new();
    for (at, device) in report.devices.iter().enumerate() {
        let same = report.devices.iter().take(at).filter(|d| d.ifname == device.ifname);
        queues.push(same.count().to_string());
    }
    let Some(first) = report.devices.first() else { return };
    for stat in first.stats.keys() {
        let (name, unit) = match stat.strip_suffix("_bytes") {
            Some(_) => (format!("floodwall_device_{stat}"), "bytes"),
            None => {
                let bare = stat.trim_end_matches("_packets");
                (format!("floodwall_device_{bare}_packets"), "packets")
            }
        };
        it.family(&name, "counter", unit, &format!("Device count {stat}"));
        for (device, queue) in report.devices.iter().zip(&queues) {
            let labels = [("device", device.ifname.as_str()), ("queue", queue.as_str())];
            let value = device.stats.get(stat).copied().unwrap_or(0) as f64;
            it.sample(&format!("{name}_total"), &labels, value);
        }
    }
    let name = "floodwall_device_backlog_packets";
    it.family(name, "gauge", "packets", "Packets that wait for the device");
    for (device, queue) in report.devices.iter().zip(&queues) {
        let labels = [("device", device.ifname.as_str()), ("queue", queue.as_str())];
        it.sample(name, &labels, device.backlog as f64);
    }
    let name = "floodwall_device_in_service";
    it.family(name, "gauge", "", "Whether the device works");
    for (device, queue) in report.devices.iter().zip(&queues) {
        let labels = [("device", device.ifname.as_str()), ("queue", queue.as_str())];
        it.sample(name, &labels, f64::from(u8::from(device.error.is_none())));
    }
}

/// Whether a count is shown as part of the histogram of turns.
fn is_of_histogram(fact: WorkerCounter) -> bool {
    TURN_BUCKETS.iter().any(|(_, of)| *of == fact)
        || matches!(fact, WorkerCounter::TurnsOver20Millis | WorkerCounter::TurnNanos)
}

/// How long turns take, and how long a request waits for its worker.
fn turns(it: &mut MetricsText, report: &RunReport) {
    let name = "floodwall_worker_turn_duration_seconds";
    it.family(name, "histogram", "seconds", "Length of a worker's turns, sleep not included");
    for (number, worker) in report.workers.iter().enumerate() {
        let of = |fact: WorkerCounter| worker.facts.get(fact.name()).copied().unwrap_or(0);
        let buckets = TURN_BUCKETS.map(|(nanos, fact)| (nanos as f64 / 1e9, of(fact)));
        let rest =
            (of(WorkerCounter::TurnsOver20Millis), of(WorkerCounter::TurnNanos) as f64 / 1e9);
        it.histogram(name, &[("worker", &number.to_string())], &buckets, rest);
    }
    let name = "floodwall_worker_answer_duration_seconds";
    let help = "From a request of another thread until its worker has answered: latency of a turn";
    it.family(name, "histogram", "seconds", help);
    for (number, answers) in report.answers.iter().enumerate() {
        let (buckets, rest) = answers.buckets();
        it.histogram(name, &[("worker", &number.to_string())], &buckets, rest);
    }
}

fn workers(it: &mut MetricsText, report: &RunReport) {
    turns(it, report);
    for fact in WorkerCounter::ALL.iter().filter(|fact| !is_of_histogram(**fact)) {
        let nanos = fact.name().strip_suffix("_ns");
        let (kind, suffix) =
            if rates::is_gauge(fact.name()) { ("gauge", "") } else { ("counter", "_total") };
        let (name, unit, scale) = match nanos {
            Some(name) => (format!("floodwall_worker_{name}_seconds"), "seconds", 1e-9),
            None => (format!("floodwall_worker_{}", fact.name()), "", 1.0),
        };
        let help = fact.sentence().replace(" in nanoseconds", "");
        it.family(&name, kind, unit, &help);
        for (number, worker) in report.workers.iter().enumerate() {
            let value = worker.facts.get(fact.name()).copied().unwrap_or(0) as f64;
            let number = number.to_string();
            it.sample(&format!("{name}{suffix}"), &[("worker", &number)], value * scale);
        }
    }
}

fn services(it: &mut MetricsText, report: &RunReport) {
    /// What a family reads of a listener or socket.
    type Read<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);
    let listeners: [Read<crate::listeners::ListenerSettings>; 8] = [
        ("half_open", "gauge", "Half-open connections", |l| l.half_open),
        ("accept_queue", "gauge", "Connections that wait to be accepted", |l| l.waiting),
        ("accept_queue_limit", "gauge", "Connections that may wait", |l| l.backlog as u64),
        ("cache_hits", "counter", "Handshakes that the SYN cache knew", |l| l.cache_hits),
        ("cookies_sent", "counter", "SYNs answered by a cookie", |l| l.cookies_sent),
        ("cookies_valid", "counter", "Connections proven by a cookie", |l| l.cookies_valid),
        ("refused", "counter", "Handshakes refused", |l| l.refused),
        ("cookie_only", "counter", "Pauses answered by cookies alone", |l| l.cookie_only),
    ];
    for (name, kind, help, read) in listeners {
        let name = format!("floodwall_listener_{name}");
        let suffix = if kind == "counter" { "_total" } else { "" };
        it.family(&name, kind, "", help);
        for listener in &report.listeners {
            let local = listener.local.to_string();
            it.sample(&format!("{name}{suffix}"), &[("local", &local)], read(listener) as f64);
        }
    }
    let sockets: [Read<crate::listeners::UdpReport>; 7] = [
        ("taken", "counter", "Datagrams taken into the socket's queue", |u| u.taken),
        ("queue_datagrams", "gauge", "Datagrams that wait to be read", |u| u.waiting),
        ("queue_bytes", "gauge", "True bytes of the datagrams that wait", |u| u.charged),
        ("full", "counter", "Datagrams refused by a full socket", |u| u.full),
        ("over_share", "counter", "Datagrams refused over a source's share", |u| u.over_share),
        (
            "challenged",
            "counter",
            "Datagrams dropped until their source answers a challenge",
            |u| u.challenged,
        ),
        ("memory", "counter", "Datagrams refused for all sockets' memory", |u| u.memory),
    ];
    for (name, kind, help, read) in sockets {
        let name = format!("floodwall_udp_socket_{name}");
        let suffix = if kind == "counter" { "_total" } else { "" };
        it.family(&name, kind, unit_of(&name), help);
        for socket in &report.udp_sockets {
            let local = socket.local.to_string();
            it.sample(&format!("{name}{suffix}"), &[("local", &local)], read(socket) as f64);
        }
    }
    let (open, max) = (report.connections.open as f64, report.connections.max as f64);
    it.single("floodwall_tcp_connections", ("gauge", ""), "TCP connections now", open);
    let help = "TCP connections that there is room for";
    it.single("floodwall_tcp_connections_limit", ("gauge", ""), help, max);
}

fn reclamation(it: &mut MetricsText, report: &RunReport) {
    let r = &report.reclamation;
    let p99 = r.grace_p99_ns as f64 / 1e9;
    let help = "The 99th percentile of grace periods";
    it.single("floodwall_grace_period_p99_seconds", ("gauge", "seconds"), help, p99);
    let help = "Bytes that were unlinked and wait for the workers";
    let bytes = r.unreclaimed_bytes as f64;
    it.single("floodwall_unreclaimed_bytes", ("gauge", "bytes"), help, bytes);
    let help = "Changes not made because as much waited as may";
    it.single("floodwall_reclamation_refused", ("counter", ""), help, r.refused as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{AnswerTimes, DeviceReport, DropReport, WorkerReport};

    fn report() -> RunReport {
        let mut answers = AnswerTimes::default();
        answers.add(std::time::Duration::from_micros(30));
        answers.add(std::time::Duration::from_secs(2));
        let device = DeviceReport {
            ifname: "a\"b\\c\nd".to_owned(),
            stats: [("rx_packets".to_owned(), 3), ("rx_bytes".to_owned(), 300)].into(),
            ..DeviceReport::default()
        };
        RunReport {
            version: "1".to_owned(),
            devices: vec![device.clone(), device],
            drops: vec![DropReport {
                direction: "in".to_owned(),
                reason: "UdpNoPort".to_owned(),
                count: 7,
                sentence: String::new(),
            }],
            workers: vec![WorkerReport {
                facts: [
                    (WorkerCounter::TurnsTo10Micros, 4),
                    (WorkerCounter::TurnsTo5Millis, 1),
                    (WorkerCounter::TurnsOver20Millis, 1),
                    (WorkerCounter::TurnNanos, 500_000_000),
                ]
                .map(|(fact, n)| (fact.name().to_owned(), n))
                .into(),
                ..WorkerReport::default()
            }],
            answers: vec![answers],
            counters: [("IpInOctets".to_owned(), 5)].into(),
            ..RunReport::default()
        }
    }

    #[test]
    fn names_are_snakes_with_base_units() {
        for (name, expected) in [
            ("IpInOctets", "ip_in_bytes"),
            ("TcpExtTCPReqQFullDoCookies", "tcp_ext_tcp_req_q_full_do_cookies"),
            ("Icmp6InMLDv2Reports", "icmp6_in_ml_dv2_reports"),
            ("IpReasmOKs", "ip_reasm_o_ks"),
            ("UdpNoPorts", "udp_no_ports"),
        ] {
            assert_eq!(snake(name), expected);
        }
    }

    #[test]
    fn every_sample_has_its_family_and_names_end_no_line() {
        for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
            let text = text(&report(), format);
            let mut families = std::collections::HashSet::new();
            let mut current = String::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# TYPE ") {
                    current = rest.split(' ').next().unwrap().to_owned();
                    assert!(families.insert(current.clone()), "{current} stands twice");
                } else if !line.starts_with('#') {
                    let name = line.split(['{', ' ']).next().unwrap();
                    let parts = ["_bucket", "_sum", "_count"];
                    let of = parts.iter().find_map(|part| name.strip_suffix(part));
                    assert!(
                        of == Some(current.as_str())
                            || name.strip_suffix("_total").unwrap_or(name)
                                == current.strip_suffix("_total").unwrap_or(&current),
                        "{line}"
                    );
                    line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
                }
            }
            assert_eq!(text.ends_with("# EOF\n"), format == MetricsFormat::OpenMetrics);
            let turns = "floodwall_worker_turn_duration_seconds";
            assert!(text.contains(&format!("{turns}_bucket{{worker=\"0\",le=\"0.00001\"}} 4\n")));
            assert!(text.contains(&format!("{turns}_bucket{{worker=\"0\",le=\"+Inf\"}} 6\n")));
            assert!(text.contains(&format!("{turns}_sum{{worker=\"0\"}} 0.5\n")), "{text}");
            let answers = "floodwall_worker_answer_duration_seconds";
            assert!(text.contains(&format!("{answers}_count{{worker=\"0\"}} 2\n")), "{text}");
            assert!(text.contains("floodwall_ip_in_bytes_total 5\n"));
            assert!(text.contains("{device=\"a\\\"b\\\\c\\nd\",queue=\"1\"} 3\n"), "{text}");
            let drop = "floodwall_dropped_packets_total{direction=\"in\",reason=\"UdpNoPort\"} 7\n";
            assert!(text.contains(drop));
        }
    }

    #[test]
    fn every_count_of_a_device_is_shown_by_stat_in_json_and_to_prometheus() {
        let named = floodwall_device::DeviceStats::default().named();
        let counted = |(at, (name, _)): (usize, (&str, u64))| (name.to_owned(), 1001 + at as u64);
        let stats: std::collections::BTreeMap<_, _> =
            named.into_iter().enumerate().map(counted).collect();
        for name in ["rx_service_full", "rx_prefix_full", "rx_segments", "rx_syns_answered"] {
            assert!(stats.contains_key(name), "{name} is counted");
        }
        let device =
            DeviceReport { ifname: "a0".to_owned(), stats: stats.clone(), ..Default::default() };
        let report = RunReport { devices: vec![device], ..RunReport::default() };
        let shown = crate::show::report(&report, Default::default(), crate::show::Style::plain());
        let json = serde_json::to_value(&report).unwrap();
        let metrics = text(&report, MetricsFormat::Prometheus);
        for (name, n) in &stats {
            let bare = name.trim_start_matches("rx_").trim_start_matches("tx_");
            let words = bare.replace('_', " ");
            assert!(shown.contains(&format!(" {n} {words}")), "{name}: {shown}");
            assert_eq!(json["devices"][0]["stats"][name], *n);
            let sample = format!("_total{{device=\"a0\",queue=\"0\"}} {n}\n");
            assert!(metrics.contains(&sample), "{name}: {metrics}");
        }
    }

    #[test]
    fn promtool_finds_nothing_wrong() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("skipped: promtool (Debian: prometheus) is not installed");
            return;
        };
        let text = text(&report(), MetricsFormat::Prometheus);
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}
