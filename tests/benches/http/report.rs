//! What was measured: rows, a table for people, JSON for programs.

use std::time::Instant;

use serde_json::json;

use crate::load::Load;
use crate::server::Server;

/// One server under one load.
pub(crate) struct Row<'a> {
    server: &'a Server,
    load: Load,
    v6: bool,
    /// Of each round: requests a second of CPU, and of time.
    rates: Vec<(f64, f64)>,
}

impl<'a> Row<'a> {
    pub(crate) fn new(server: &'a Server, load: Load, v6: bool) -> Self {
        Self { server, load, v6, rates: Vec::new() }
    }

    pub(crate) fn measure(&mut self, seconds: u32) {
        let (cpu, start) = (self.server.cpu(), Instant::now());
        let requests = self.load.run(self.server, self.v6, seconds) as f64;
        let (cpu, time) = (self.server.cpu() - cpu, start.elapsed());
        self.rates.push((requests / cpu.as_secs_f64(), requests / time.as_secs_f64()));
    }

    fn rate(&self) -> f64 {
        median(self.rates.iter().map(|(rate, _)| *rate))
    }

    fn family(&self) -> &'static str {
        if self.v6 { "IPv6" } else { "IPv4" }
    }

    /// How many times the rate of the contestant with the prefix `name` under the same load.
    fn to(&self, name: &str, rows: &[Self]) -> Option<f64> {
        let same = |row: &&Row<'_>| {
            row.load == self.load && row.v6 == self.v6 && row.server.name.starts_with(name)
        };
        rows.iter().find(same).map(|row| self.rate() / row.rate())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Processor, cores, kernel.
fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores, Linux {}", name.map_or("unknown", |(_, n)| n), kernel.trim())
}

pub(crate) fn table(rows: &[Row<'_>]) {
    println!("{}; medians of interleaved rounds", machine());
    println!(
        "{:24} {:21} {:4} {:>12} {:>8} {:>10} {:>10} {:>10}",
        "load", "server", "", "/s of CPU", "us each", "/s", "to smoltcp", "to kernel"
    );
    for row in rows {
        let ratio = |name| row.to(name, rows).map_or("".to_owned(), |ratio| format!("{ratio:.2}x"));
        let rate = row.rate();
        println!(
            "{:24} {:21} {:4} {rate:12.0} {:8.2} {:10.0} {:>10} {:>10}",
            row.load.name(),
            row.server.name,
            row.family(),
            1e6 / rate,
            median(row.rates.iter().map(|(_, rate)| *rate)),
            ratio("smoltcp"),
            ratio("kernel"),
        );
    }
}

pub(crate) fn json(rows: &[Row<'_>]) {
    let of = |row: &Row<'_>| {
        json!({
            "load": row.load.name(),
            "server": row.server.name,
            "family": row.family(),
            "requests_per_cpu_second": row.rate(),
            "rounds": row.rates.iter().map(|(rate, _)| rate).collect::<Vec<_>>(),
            "requests_per_second": median(row.rates.iter().map(|(_, rate)| *rate)),
            "to_smoltcp": row.to("smoltcp", rows),
            "to_kernel": row.to("kernel", rows),
        })
    };
    let rows: Vec<_> = rows.iter().map(of).collect();
    println!("{:#}", json!({ "machine": machine(), "rows": rows }));
}
