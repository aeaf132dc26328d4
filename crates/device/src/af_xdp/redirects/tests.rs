//! Entries come into force, and out of it, in the kernel's own machine.

use core::time::Duration;

use floodwall_base::{IfIndex, MacAddr};

use super::*;
use crate::af_xdp::{FirstLine, FirstLineState};

const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const STATIONS_AFTER: [u8; 12] = [2, 0, 0, 0, 0, 0x22, 2, 0, 0, 0, 0, 0x11];
/// Of the host's own interfaces: no frame is sent, so any will do.
const LOOPBACK: u32 = 1;

/// A datagram between two hosts, the last byte of the destination given.
fn frame(v6: bool, to: u8) -> Vec<u8> {
    let mut bytes = [&STATION.0[..], &[2, 0, 0, 0, 0, 9]].concat();
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 17, 64]);
        bytes.extend(
            [[0xfd, 1], [0xfd, 2]]
                .map(|net| {
                    let mut addr = [0; 16];
                    addr[..2].copy_from_slice(&net);
                    addr
                })
                .concat(),
        );
        bytes[53] = to;
    } else {
        bytes.extend([8, 0, 0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, to]);
        let words = bytes[14..].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend([0, 7, 0, 9, 0, 16, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes
}

fn offer(v6: bool, to: u8, until: Instant) -> RedirectOffer {
    let frame = frame(v6, to);
    let addr = |at: usize| match v6 {
        false => IpAddr::from(*frame[at..].first_chunk::<4>().unwrap()),
        true => IpAddr::from(*frame[at..].first_chunk::<16>().unwrap()),
    };
    let (from, to) = if v6 { (addr(22), addr(38)) } else { (addr(26), addr(30)) };
    let (arrives, leaves) = (IfIndex(1), IfIndex(2));
    RedirectOffer { arrives, leaves, from, to, stations: STATIONS_AFTER, mtu: 1500, until }
}

fn line() -> Option<FirstLine> {
    FirstLine::load(STATION)
        .inspect_err(|error| eprintln!("SKIPPED: the kernel loads no program here: {error}"))
        .ok()
}

#[test]
fn an_offered_pair_leaves_by_the_program_until_it_is_forgotten() {
    let Some(mut line) = line() else { return };
    // The kernel's clock runs; a day from the start of it is far, and its start is over.
    let mut now = Instant::from_nanos(1_000_000_000);
    let far = Instant::FAR;
    for v6 in [false, true] {
        let (known, other) = (frame(v6, 2), frame(v6, 3));
        line.admit(now, None);
        assert_ne!(line.say(&known).unwrap(), FirstLineState::Redirected);
        line.redirect(now, &offer(v6, 2, far), LOOPBACK);
        let mut after = known.clone();
        let (said, _) = line.run(&mut after, 1).unwrap();
        assert_eq!(said, FirstLineState::Redirected, "IPv6 {v6}");
        assert_eq!((&after[..12], after[if v6 { 21 } else { 22 }]), (&STATIONS_AFTER[..], 63));
        assert_ne!(line.say(&other).unwrap(), FirstLineState::Redirected);
        // Under pressure as well.
        line.admit(now, Some(0));
        assert_eq!(line.say(&known).unwrap(), FirstLineState::Redirected);
        line.admit(now, None);
        // An offer of a turn that began before the change is good for nothing.
        line.forget_redirects(now);
        assert_ne!(line.say(&known).unwrap(), FirstLineState::Redirected);
        now += Duration::from_millis(2);
        line.redirect(now, &offer(v6, 2, far), LOOPBACK);
        assert_ne!(line.say(&known).unwrap(), FirstLineState::Redirected);
        line.admit(now, None);
        line.redirect(now, &offer(v6, 2, far), LOOPBACK);
        assert_eq!(line.say(&known).unwrap(), FirstLineState::Redirected);
        line.forget_redirects(now);
        now += Duration::from_millis(2);
        // One that ends at once.
        line.admit(now, None);
        line.redirect(now, &offer(v6, 2, Instant::from_nanos(1)), LOOPBACK);
        assert_ne!(line.say(&known).unwrap(), FirstLineState::Redirected);
        line.forget_redirects(now);
        now += Duration::from_millis(2);
    }
    assert_eq!(line.stats().rx_redirected, 6);
}

#[test]
fn a_pair_that_finds_no_place_displaces_none_that_is_in_force() {
    let key = core::array::from_fn(|at| 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(at as u64 + 1));
    let Ok(table) = XdpRedirects::create(key) else {
        return eprintln!("SKIPPED: the kernel gives no maps here");
    };
    let (now, far) = (Instant::from_nanos(1_000_000_000), Instant::FAR);
    let pair = |number: u32, until| RedirectOffer {
        to: IpAddr::from((0x0a02_0000 + number).to_be_bytes()),
        ..offer(false, 2, until)
    };
    let generation = table.generation();
    let all = XDP_REDIRECTS as u32 * 2;
    let entered =
        (0..all).filter(|n| table.enter(now, generation, &pair(*n, far), LOOPBACK)).count();
    assert!(entered > XDP_REDIRECTS / 2 && entered <= XDP_REDIRECTS, "{entered}");
    // Those that are there stay, and are the ones that are renewed.
    let again = (0..all).filter(|n| table.enter(now, generation, &pair(*n, far), LOOPBACK)).count();
    assert_eq!(again, entered);
    // Out of force, and not yet old enough to be written over.
    table.forget(now);
    let generation = table.generation();
    assert!(!table.enter(now, generation, &pair(0, far), LOOPBACK));
    let later = now + Duration::from_millis(2);
    assert!(table.enter(later, generation, &pair(0, far), LOOPBACK));
    // Expired ones give way in the same manner.
    let ends = later + Duration::from_millis(10);
    let some = (1..all).filter(|n| table.enter(later, generation, &pair(*n, ends), LOOPBACK));
    let some = some.count();
    assert!(some > XDP_REDIRECTS / 2, "{some}");
    let others = |now| {
        let others = all..2 * all;
        others.filter(|n| table.enter(now, generation, &pair(*n, far), LOOPBACK)).count()
    };
    assert!(others(ends) + some < XDP_REDIRECTS, "no place that may still be read is rewritten");
    assert!(others(ends + Duration::from_millis(2)) > XDP_REDIRECTS / 2);
}
