//! Damaged SYNs and ACKs at the programs of the interface, and at the stack.
//!
//! Each frame is a SYN, or the ACK of a handshake, with some bytes of some header changed, cut
//! short or followed by others; most have their checksums made right again. Seeds are fixed. The
//! stack's verdict is its answer to a SYN, and the class of its triage for an ACK. The interpreter
//! refuses a read beyond the frame. Where the kernel runs programs, it is asked about some of the
//! frames, too.

use floodwall_base::PublicRandom;
use floodwall_bpf::cookie::find_syn;
use floodwall_bpf::{AccessSize, Assembler, Instruction, Register};
use floodwall_checksum::sum;
use floodwall_device::{DeviceError, FirstLine, FirstLineState};
use floodwall_dispatch::Clock;
use floodwall_packet::{Engine as _, RxFilter, Triage};
use floodwall_tests::Rig;
use floodwall_tests::craft::{self, FAMILIES, HOST};
use floodwall_tests::tcp::{Heard, SYN_ACK, heard};
use floodwall_wire::IpProtocol;

use super::{FORGED, Interface, PROVEN, bytes_of, offers};
use crate::{HELLO, client, server};

const SEED: u64 = 30;
/// Frames that the interpreter is asked about, and of these the kernel.
const FRAMES: u32 = 20_000;
const FRAMES_KERNEL: u32 = 1_000;
const LINK: usize = 14;

/// The program that finds SYNs, as the one at the interface does before its tail call.
fn finder() -> Vec<Instruction> {
    let mut a = Assembler::new();
    let (syn, other) = (a.label(), a.label());
    a.load(AccessSize::Word, Register::R7, Register::R1, 0).load(
        AccessSize::Word,
        Register::R8,
        Register::R1,
        4,
    );
    find_syn(&mut a, syn, other);
    a.place(syn);
    a.set(Register::R0, 1).exit();
    a.place(other);
    a.set(Register::R0, 0).exit();
    a.finish().unwrap()
}

/// A plain IP packet of a frame: where its TCP header begins, and where the packet ends.
fn segment_of(frame: &[u8]) -> Option<(usize, usize)> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let (start, end) = match half(LINK - 2)? {
        0x0800 if frame.get(LINK) == Some(&0x45) => {
            (LINK + 20, LINK + usize::from(half(LINK + 2)?))
        }
        0x86dd => (LINK + 40, LINK + 40 + usize::from(half(LINK + 4)?)),
        _ => return None,
    };
    (start + 20 <= end && end <= frame.len()).then_some((start, end))
}

/// Makes the checksum of an IPv4 header right.
fn mend_header(frame: &mut [u8]) {
    if frame.get(LINK - 2..LINK) == Some(&[8, 0])
        && let Some(header) = frame.get_mut(LINK..LINK + 20)
    {
        header[10..12].fill(0);
        let checksum = sum(header).finish().to_be_bytes();
        header[10..12].copy_from_slice(&checksum);
    }
}

/// Whether the checksum of the segment is right, and that made so.
fn mend_segment(frame: &mut [u8]) -> bool {
    let Some((start, end)) = segment_of(frame) else { return false };
    let (from, to) = match start {
        34 => (ip(&frame[26..30]), ip(&frame[30..34])),
        _ => (ip(&frame[22..38]), ip(&frame[38..54])),
    };
    let before = [frame[start + 16], frame[start + 17]];
    frame[start + 16..start + 18].fill(0);
    let pseudo = craft::pseudo(from, to, IpProtocol::TCP, end - start);
    let checksum = pseudo.add(sum(&frame[start..end])).finish().to_be_bytes();
    frame[start + 16..start + 18].copy_from_slice(&checksum);
    before == checksum
}

fn ip(bytes: &[u8]) -> std::net::IpAddr {
    match bytes.first_chunk::<16>() {
        Some(bytes) => std::net::Ipv6Addr::from(*bytes).into(),
        None => std::net::Ipv4Addr::from(*bytes.first_chunk::<4>().unwrap()).into(),
    }
}

/// Whether an option of a plain segment lies about its length, or signs the segment: the interface
/// leaves such segments to the stack.
fn has_odd_options(frame: &[u8]) -> bool {
    let Some((start, end)) = segment_of(frame) else { return true };
    let bytes = usize::from(frame[start + 12] >> 4) * 4;
    if bytes < 20 || start + bytes > end {
        return true;
    }
    let mut rest = &frame[start + 20..start + bytes];
    while let [kind, behind @ ..] = rest {
        let len = behind.first().map_or(0, |len| usize::from(*len));
        let fits = match kind {
            0 => return false,
            1 => {
                rest = behind;
                continue;
            }
            2 => len == 4,
            3 => len == 3,
            4 => len == 2,
            5 => len > 2 && len % 8 == 2,
            8 => len == 10,
            19 | 29 => false,
            _ => len >= 2,
        };
        match rest.get(len..) {
            Some(next) if fits => rest = next,
            _ => return true,
        }
    }
    false
}

/// A frame with some damage behind the station's address.
fn damaged(random: &mut PublicRandom, whole: &[u8]) -> Vec<u8> {
    let mut frame = whole.to_vec();
    let l4 = if frame[LINK] >> 4 == 4 { LINK + 20 } else { LINK + 40 };
    // Half of them keep what is read first, so that what is behind it is read as well.
    let (first, last, changes) = match random.below(6) {
        0 => (6, frame.len(), 1 + random.below(8)),
        1 => (LINK, l4, 1 + random.below(2)),
        2 => (l4, l4 + 20, 1 + random.below(3)),
        _ => (l4 + 12, frame.len(), random.below(4)),
    };
    for _ in 0..changes {
        let at = first + random.below((last - first) as u64) as usize;
        frame[at] ^= match random.below(3) {
            0 => 1 << random.below(8),
            _ => random.below(256) as u8,
        };
    }
    match random.below(8) {
        0 => frame.truncate(LINK + random.below((frame.len() - LINK) as u64) as usize),
        1 => frame.resize(frame.len() + random.below(40) as usize, 0),
        _ => {}
    }
    if random.below(4) > 0 {
        mend_header(&mut frame);
        mend_segment(&mut frame);
    }
    frame
}

/// What the stack sends for a frame, if anything.
enum StackAnswer {
    /// A SYN-ACK, as a frame.
    SynAck(Vec<u8>),
    /// It asks the link for the way first, which the interface does not.
    AsksNeighbor,
    /// Something else, or nothing.
    Other,
}

fn answer_of(rig: &mut Rig, frame: &[u8]) -> StackAnswer {
    let departed = rig.frame(frame);
    let is_syn_ack = |heard: Heard| heard.flags.0 & 0x17 == SYN_ACK.0;
    let departed_bytes = departed.first().map(|_| bytes_of(&departed[..1])).unwrap_or_default();
    match departed.first().and_then(heard) {
        Some(heard) if is_syn_ack(heard.clone()) => StackAnswer::SynAck(departed_bytes),
        _ if departed_bytes.get(12..14) == Some(&[8, 6]) => StackAnswer::AsksNeighbor,
        _ if departed_bytes.get(54) == Some(&135) => StackAnswer::AsksNeighbor,
        _ => StackAnswer::Other,
    }
}

/// A SYN that the interface answers has the stack's own answer, byte for byte; and what the stack
/// answers, the interface answers too, or leaves to it for one of the reasons of
/// `docs/design/interface-cookies.md`.
#[test]
fn damaged_syns_are_answered_as_the_stack_answers_them() {
    let (mut rig, listener) = server(8);
    let always = floodwall_stack::tcp_set::CookiePolicy::Always;
    rig.sockets(|s| s.tcp_set_cookies(listener, always).unwrap());
    let (mut interface, finder) = (Interface::new(&rig), finder());
    let mut random = PublicRandom::new(SEED);
    let (mut equal, mut silent, mut left, mut asked) = (0, 0, 0, 0);
    for number in 0..FRAMES {
        let family = FAMILIES[number as usize % 2];
        let whole = client(number, family).syn();
        let frame = damaged(&mut random, &whole);
        let is_syn = interface.machine.run(&finder, &mut frame.clone()).unwrap().verdict == 1;
        let said = if is_syn { interface.answers(&frame) } else { None };
        let what = || format!("seed {SEED}, frame {number}: {frame:x?}");
        match (said, answer_of(&mut rig, &frame)) {
            (Some(ours), StackAnswer::SynAck(theirs)) => {
                // The interface answers to where the frame came from, the stack by its neighbours.
                assert_eq!(ours[6..], theirs[6..], "{}", what());
                assert_eq!(ours[..6], frame[6..12], "{}", what());
                equal += 1;
            }
            (Some(_), StackAnswer::AsksNeighbor) => asked += 1,
            // Its checksum is not verified at the interface.
            (Some(_), StackAnswer::Other) => {
                assert!(!mend_segment(&mut frame.clone()), "{}", what());
            }
            (None, StackAnswer::SynAck(_)) => {
                assert!(!is_syn || has_odd_options(&frame), "{}", what());
                left += 1;
            }
            (None, _) => silent += 1,
        }
    }
    let all = (equal, silent, left, asked);
    assert!(equal > FRAMES / 8 && silent > FRAMES / 8 && left > 0, "{all:?}");
}

/// An ACK that the interface believes is one that triage believes, and the other way round.
#[test]
fn damaged_acks_are_believed_as_triage_believes_them() {
    let (mut rig, _) = server(8);
    rig.stack.syns_are_answered(true);
    let mut interface = Interface::new(&rig);
    let mut random = PublicRandom::new(SEED);
    let (mut proven, mut forged, mut stray) = (0, 0, 0);
    let handshakes: Vec<_> = (0..64)
        .map(|n| {
            let it = client(n, FAMILIES[n as usize % 2]);
            let it = if n % 4 < 2 { it } else { it.timeless() };
            let heard = interface.hears(&it);
            it.ack(&heard, if n % 8 < 4 { HELLO } else { &[] })
        })
        .collect();
    for number in 0..FRAMES {
        let frame = damaged(&mut random, &handshakes[number as usize % handshakes.len()]);
        let what = || format!("seed {SEED}, frame {number}: {frame:x?}");
        // The filter drops what a group has sent before it comes to this.
        let is_of_group = frame[6] & 1 == 1;
        let said = if is_of_group { 1 } else { interface.judges(&frame) };
        let class = rig.classify(std::slice::from_ref(&frame))[0];
        match said {
            PROVEN => proven += 1,
            FORGED => forged += 1,
            _ => stray += 1,
        }
        let is_believed = class == Triage::Established;
        let is_equal = (said == PROVEN) == is_believed;
        let is_left = said != FORGED && is_believed && has_odd_options(&frame);
        assert!(is_equal || is_left, "{said}, {class:?}, {}", what());
    }
    let all = (proven, forged, stray);
    assert!(proven > FRAMES / 8 && forged > FRAMES / 8 && stray > FRAMES / 8, "{all:?}");
}

/// The programs in the kernel, in force, under pressure, with credit for all.
fn in_kernel(rig: &mut Rig) -> Option<FirstLine> {
    let mut line = match FirstLine::load_answering(craft::mac(HOST)) {
        Ok(line) => line,
        Err(error @ DeviceError::NoPrivilege { .. }) => {
            eprintln!("SKIPPED: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    // The kernel's programs read the system's clock.
    rig.now = Clock::new().now();
    rig.run_for(std::time::Duration::from_millis(1));
    let mut wanted = RxFilter::default();
    rig.stack.rx_filter(floodwall_base::IfIndex(1), &mut wanted);
    line.want(&wanted);
    line.answer_syns(&offers(rig)).unwrap();
    line.admit(rig.now, Some(usize::MAX));
    Some(line)
}

#[test]
fn the_kernel_says_of_damaged_frames_what_the_interpreter_says() {
    let (mut rig, listener) = server(8);
    let always = floodwall_stack::tcp_set::CookiePolicy::Always;
    rig.sockets(|s| s.tcp_set_cookies(listener, always).unwrap());
    let Some(line) = in_kernel(&mut rig) else { return };
    let (mut interface, finder) = (Interface::new(&rig), finder());
    let mut random = PublicRandom::new(SEED);
    let (mut answered, mut proven, mut forged) = (0, 0, 0);
    for number in 0..FRAMES_KERNEL {
        let it = client(number, FAMILIES[number as usize % 2]);
        let syn = damaged(&mut random, &it.syn());
        let is_syn = interface.machine.run(&finder, &mut syn.clone()).unwrap().verdict == 1;
        let expected = is_syn && interface.answers(&syn).is_some();
        let said = line.say(&syn).unwrap();
        assert_eq!(said == FirstLineState::Answered, expected, "{number}: {said:?}, {syn:x?}");
        answered += u32::from(expected);

        let heard = interface.hears(&it);
        let ack = damaged(&mut random, &it.ack(&heard, HELLO));
        let counts = |line: &FirstLine| {
            let stats = line.stats();
            (stats.rx_cookies_proven, stats.rx_cookies_forged)
        };
        let (before, expected) = (counts(&line), interface.judges(&ack));
        let said = line.say(&ack).unwrap();
        let after = counts(&line);
        let found = (after.0 > before.0, after.1 > before.1);
        assert_eq!(found, (expected == PROVEN, expected == FORGED), "{number}: {said:?}, {ack:x?}");
        proven += u32::from(found.0);
        forged += u32::from(found.1);
    }
    let all = (answered, proven, forged);
    assert!(all.0 > 100 && all.1 > 100 && all.2 > 100, "{all:?}");
}
