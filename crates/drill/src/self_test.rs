//! The device contract as a command: what a device does, end to end, on this machine.
//!
//! [`self_test`] is called by `floodwall self-test` with the word that `floodwall run --device`
//! takes. In a network namespace of its own it lays a cable between the kernel and a host of ours
//! and has the kernel's own tools and sockets use it (`bench.rs`, `probes.rs`); on an interface
//! that is there already it only looks (`interface.rs`): it sends nothing, and leaves everything as
//! it was.
//!
//! Invariants: no packet leaves the namespaces that it makes; what it made goes with the process,
//! however that ends; each [`Finding`] that is not `works` gives a reason and a remedy.

mod bench;
mod capacity;
mod finding;
mod interface;
mod probes;
mod unknown;
mod witness;

use std::sync::atomic::{AtomicBool, Ordering};

use floodwall_device::{DeviceKind, DeviceSpec, XdpMode};

pub use self::capacity::{DeviceCapacity, measure_capacity};
use self::finding::Findings;
pub use self::finding::{Finding, FindingOutcome, SelfTest};
use crate::error::DrillError;

/// What to prove, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SelfTestOptions {
    /// The device.
    pub device: DeviceSpec,
    /// On a cable of its own in a namespace, also where the word names an interface. A TUN or TAP
    /// always is.
    pub in_namespaces: bool,
    /// Whether the path's capacity is measured too, on a cable of its own in any case.
    pub capacity: bool,
}

impl SelfTestOptions {
    fn is_alone(&self) -> bool {
        self.in_namespaces || matches!(self.device.kind, DeviceKind::Tun | DeviceKind::Tap)
    }
}

/// Proves a device; 5 to 10 s for each way of opening it in namespaces, one on an interface.
/// Stops soon after `stop` is set.
///
/// # Errors
/// It could not be run: a privilege or a command is missing, or it was interrupted. What does not
/// work is no error, but a finding.
pub fn self_test(options: &SelfTestOptions, stop: &AtomicBool) -> Result<SelfTest, DrillError> {
    let mut findings = Findings::default();
    if options.is_alone() {
        for way in ways(&options.device) {
            bench::prove(&way, &mut findings, stop)?;
        }
    } else {
        interface::look(&options.device, &mut findings);
    }
    if options.capacity {
        for way in measured_ways(&options.device) {
            findings.about(&way);
            capacity::tell(&way, &mut findings, stop)?;
        }
    }
    go_on(stop)?;
    Ok(SelfTest::new(options.device.to_string(), options.is_alone(), findings))
}

/// Each way in which the word allows the device to be opened: with one queue and four, natively and
/// generically, where it leaves that open.
fn ways(word: &DeviceSpec) -> Vec<DeviceSpec> {
    let modes = match (word.kind, word.mode) {
        (DeviceKind::Xdp, XdpMode::Auto) => vec![XdpMode::Native, XdpMode::Generic],
        (_, mode) => vec![mode],
    };
    let queues = match (word.kind, word.queues) {
        (DeviceKind::Packet, _) => vec![None],
        (_, Some(queues)) => vec![Some(queues)],
        (_, None) => vec![Some(1), Some(4)],
    };
    let with = |mode| {
        queues.iter().map(move |queues| DeviceSpec { queues: *queues, mode, ..word.clone() })
    };
    modes.into_iter().flat_map(with).collect()
}

/// The ways with a reported capacity: by one queue where the word leaves it open, as one sender
/// fills no more.
fn measured_ways(word: &DeviceSpec) -> Vec<DeviceSpec> {
    ways(&DeviceSpec { queues: word.queues.or(Some(1)), ..word.clone() })
}

/// An error where it was interrupted.
fn go_on(stop: &AtomicBool) -> Result<(), DrillError> {
    if stop.load(Ordering::Relaxed) { Err(DrillError::Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_leaves_it_open_is_proved_in_every_way() {
        let of = |text: &str| {
            let all = ways(&text.parse().unwrap());
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of("xdp:e,queues=2,mode=generic"), ["xdp:e,queues=2,mode=generic"]);
        let modes = ["native", "generic"];
        let all = modes.map(|m| [1, 4].map(|q| format!("xdp:e,queues={q},mode={m}"))).concat();
        assert_eq!(of("xdp:e"), all);
        assert_eq!(of("tap:t"), ["tap:t,queues=1", "tap:t,queues=4"]);
        assert_eq!(of("packet:e"), ["packet:e"]);
        let measured = |text: &str| {
            let all = measured_ways(&text.parse().unwrap());
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(measured("xdp:e"), modes.map(|m| format!("xdp:e,queues=1,mode={m}")));
        assert_eq!(measured("tap:t,queues=4"), ["tap:t,queues=4"]);
        assert_eq!(measured("packet:e"), ["packet:e"]);
    }
}
