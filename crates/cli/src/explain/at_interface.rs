//! For which services the packets are that end at an interface, before a worker sees them: by the
//! samples of the program there (`Device::sampled_services`).
//!
//! Called by `attack.rs` for the place of a flood and its evidence, and by `top`. A rate is that of
//! the queue's count, divided as the sample of that queue is.

use crate::rates::{ReportDifference, short};
use crate::report::RunReport;

/// Services that a finding names, and the least part of the whole that one has.
const NAMED_MAX: usize = 3;
const PART_MIN: f64 = 0.2;

/// Packets of one service that end at the interfaces.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ServiceRate {
    pub(crate) protocol: String,
    pub(crate) port: u16,
    pub(crate) per_second: f64,
    /// So many of this size of the sample.
    frames: u64,
    sampled: u64,
}

/// What these counts of the devices are of, the most frequent first.
pub(crate) fn services(between: &ReportDifference<'_>, counts: &[&str]) -> Vec<ServiceRate> {
    let mut all: Vec<ServiceRate> = Vec::new();
    for (n, device) in between.after.devices.iter().enumerate() {
        for count in counts {
            let rate = between.queue(n, count);
            let samples = || device.sampled.iter().filter(|it| it.count == *count);
            let sampled: u64 = samples().map(|it| it.frames).sum();
            if rate <= 0.0 || sampled == 0 {
                continue;
            }
            for it in samples().filter(|it| it.port != 0) {
                let per_second = rate * it.frames as f64 / sampled as f64;
                let same =
                    |old: &&mut ServiceRate| (&old.protocol, old.port) == (&it.protocol, it.port);
                match all.iter_mut().find(same) {
                    Some(old) => {
                        old.per_second += per_second;
                        old.frames += it.frames;
                        old.sampled += sampled;
                    }
                    None => all.push(ServiceRate {
                        protocol: it.protocol.clone(),
                        port: it.port,
                        per_second,
                        frames: it.frames,
                        sampled,
                    }),
                }
            }
        }
    }
    all.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    all
}

/// The services that have a large part of `rate`.
fn heaviest(services: &[ServiceRate], rate: f64) -> impl Iterator<Item = &ServiceRate> {
    services.iter().filter(move |it| it.per_second >= PART_MIN * rate).take(NAMED_MAX)
}

/// Their names, as a place.
pub(super) fn place(services: &[ServiceRate], rate: f64, report: &RunReport) -> String {
    let names: Vec<_> = heaviest(services, rate).map(|it| it.name(report)).collect();
    names.join(", ")
}

/// The same as evidence.
pub(super) fn evidence(services: &[ServiceRate], rate: f64, report: &RunReport) -> Vec<String> {
    let one = |it: &ServiceRate| {
        format!(
            "for {} {}/s ({} of {} sampled at the interface)",
            it.name(report),
            short(it.per_second),
            it.frames,
            it.sampled
        )
    };
    heaviest(services, rate).map(one).collect()
}

impl ServiceRate {
    /// The address of the service in this instance, where it has one only; else protocol and port.
    fn name(&self, report: &RunReport) -> String {
        let tcp = report.listeners.iter().map(|it| ("tcp", it.local));
        let udp = report.udp_sockets.iter().map(|it| ("udp", it.local));
        let mut ours =
            tcp.chain(udp).filter(|(kind, at)| *kind == self.protocol && at.port() == self.port);
        match (ours.next(), ours.next()) {
            (Some((_, at)), None) => at.to_string(),
            _ => format!("{} port {}", self.protocol, self.port),
        }
    }
}
