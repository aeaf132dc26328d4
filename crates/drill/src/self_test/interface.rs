//! An interface that is there already: looked at, opened, left as it was.
//!
//! Called by `self_test.rs` for `packet:` and `xdp:`. No stack is behind the device and nothing is
//! transmitted, so no packet of ours leaves. What does change for a moment: the program is attached
//! (some drivers restart the link for that), the interface is promiscuous, and the kernel's half
//! has another place; all of it is set back by closing.

use std::process::Command;

use floodwall_base::MacAddr;
use floodwall_device::{
    DeviceKind, DeviceSpec, FirstLine, FirstLineState, LinkState, NapiPolicy, NapiPriority,
    OpenConfig, OpenedDevice, Placement, PlacementConfig,
};
use floodwall_packet::{Burst, Pool, PoolConfig};
use serde_json::Value;

use super::bench::tell_opened;
use super::finding::Findings;

/// The address of no station: no frame is for it.
const NO_STATION: MacAddr = MacAddr([2, 0x5e, 0x1f, 0x7e, 0x57, 1]);
/// GSO frames in the pool.
const SUPERS_POOLED: usize = 16;

/// Looks at the interface; what it finds.
pub(super) fn look(word: &DeviceSpec, findings: &mut Findings) {
    findings.about(word);
    let before = settings(&word.name);
    if word.kind == DeviceKind::Xdp && !program(findings) {
        return;
    }
    let config = OpenConfig { station: Some(NO_STATION), offload: true, ..OpenConfig::default() };
    match word.open(&config) {
        Ok(opened) => {
            carrier(&word.name, findings);
            tell_opened(findings, &opened);
            memory(opened, findings);
            places(&word.name, findings);
        }
        Err(error) => {
            let words = error.to_string();
            let remedy = "`--in-namespaces` proves this kind of device on a cable of its own";
            findings.fails("open", words, remedy);
        }
    }
    left(&word.name, before.as_ref(), findings);
}

fn carrier(name: &str, findings: &mut Findings) {
    let carries = LinkState::new(name).is_ok_and(|state| state.carries());
    if carries {
        findings.works("link", "up, and it carries");
    } else {
        let remedy = format!("`ip link set dev {name} up`, and look at the cable");
        findings.lacks("link", "it is down, or carries nothing", &remedy);
    }
}

/// Whether the kernel takes the program and it does what it should, without any interface.
fn program(findings: &mut Findings) -> bool {
    let check = "XDP program";
    let frame = |to: MacAddr| {
        let mut frame = vec![0; 60];
        frame.iter_mut().zip(to.0).for_each(|(byte, mac)| *byte = mac);
        frame.iter_mut().skip(12).zip([0x08, 0x00, 0x45]).for_each(|(byte, is)| *byte = is);
        frame
    };
    let line = match FirstLine::load(NO_STATION) {
        Ok(line) => line,
        Err(error) => {
            findings.fails(check, error.to_string(), "");
            return false;
        }
    };
    let [ours, others, all] = [NO_STATION, MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([0xff; 6])]
        .map(|to| line.say(&frame(to)));
    let is_right = matches!(ours, Ok(FirstLineState::Taken))
        && matches!(others, Ok(FirstLineState::Passed))
        && matches!(all, Ok(FirstLineState::Passed));
    let words = match is_right {
        true => "verified; it takes what is for our station and leaves all else to the host",
        false => "it steers frames wrongly",
    };
    findings.judge(check, is_right, words, "report it, with the kernel's version");
    is_right
}

/// Shares packet memory with the kernel, and polls once for packets.
fn memory(mut opened: OpenedDevice, findings: &mut Findings) {
    let check = "packet memory";
    let config = PoolConfig { supers: SUPERS_POOLED, ..PoolConfig::default() };
    let mib = (config.frames * config.frame_bytes) >> 20;
    let pool = match Pool::new(&config) {
        Ok(pool) => pool,
        Err(error) => {
            findings.fails(check, error.to_string(), "make memory free");
            return;
        }
    };
    for queue in &mut opened.queues {
        // Where its last owner has just left, the queue is had a moment later.
        let mut burst = Burst::new();
        if let Err(error) = queue.receive(&pool, &mut burst) {
            findings.fails(check, error.to_string(), "");
            return;
        }
    }
    let words = format!("{mib} MiB, received into by {} queues", opened.queues.len());
    findings.works(check, words);
}

/// Which places of the kernel's half can be had, by taking each and giving it back.
fn places(name: &str, findings: &mut Findings) {
    for (half, check) in
        [(NapiPolicy::NapiThread, "NAPI thread"), (NapiPolicy::BusyPoll, "busy polling")]
    {
        let config = PlacementConfig { half, cores: Vec::new(), rank: NapiPriority::default() };
        match Placement::take(name, &config) {
            Ok(placement) => {
                findings.works(check, format!("can be had: {}", placement.report().words));
            }
            Err(error) => findings.lacks(check, error.to_string(), ""),
        }
    }
}

/// The output of `ip` for an interface, without counters and running times; `None` without the
/// command.
fn settings(name: &str) -> Option<Value> {
    let words = ["-d", "-j", "link", "show", "dev", name];
    let said = Command::new("ip").args(words).output().ok().filter(|said| said.status.success())?;
    serde_json::from_slice(&said.stdout).ok()
}

fn left(name: &str, before: Option<&Value>, findings: &mut Findings) {
    let check = "left as it was";
    match (before, settings(name)) {
        (Some(before), Some(after)) => findings.judge(
            check,
            *before == after,
            if *before == after { "by `ip -d link`" } else { "`ip -d link` shows another state" },
            "look at it with `ip -d link show`; report it",
        ),
        (None, _) => {}
        (Some(_), None) => findings.fails(check, "it is not there any more", "look at the card"),
    }
}
