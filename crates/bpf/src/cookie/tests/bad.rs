//! Frames that are no plain segments: never out of bounds, never answered.

use floodwall_base::Instant;
use floodwall_syncache::ListenSettings;
use proptest::prelude::*;

use super::rig::*;
use crate::cookie::find_syn;
use crate::interpreter::Machine;
use crate::{AccessSize, Assembler, Register};

const START: Instant = Instant::from_nanos(77_000_000_000);
const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

fn rig() -> Rig {
    Rig::new(ListenSettings::new(100), START)
}

/// Both programs on a frame; every fault panics.
fn both(rig: &mut Rig, frame: &[u8]) -> (u64, u64) {
    let (mut one, mut two) = (frame.to_vec(), frame.to_vec());
    (rig.run_syn(&mut one).verdict, rig.run_ack(&mut two).verdict)
}

#[test]
fn a_frame_that_ends_anywhere_is_read_no_further() {
    let mut rig = rig();
    for v6 in [false, true] {
        for options in [&LINUX[..], &[], &[2, 4, 5, 180, 1, 1, 1, 0]] {
            for flags in [0x02, 0x10] {
                let whole = Sent { flags, text: 9, ..Sent::syn(v6, options) }.frame();
                for end in 14..whole.len() {
                    let (syn, ack) = both(&mut rig, &whole[..end]);
                    assert_eq!((syn, ack), (LEFT, STRAY), "{end} bytes of {}", whole.len());
                }
            }
        }
    }
}

#[test]
fn what_is_no_plain_syn_is_left() {
    let mut rig = rig();
    for v6 in [false, true] {
        for flags in 0..=u8::MAX {
            let mut frame = Sent { flags, ..Sent::syn(v6, &LINUX) }.frame();
            let is_syn = flags & 0x17 == 2;
            let wanted = if is_syn { ANSWERED } else { LEFT };
            assert_eq!(rig.run_syn(&mut frame).verdict, wanted, "{flags:#04x}");
        }
        let closed = Sent { ports: (9, PORT + 1), ..Sent::syn(v6, &LINUX) };
        assert_eq!(rig.run_syn(&mut closed.frame()).verdict, LEFT);
        let nowhere = Sent { ports: (0, PORT), ..Sent::syn(v6, &LINUX) };
        assert_eq!(rig.run_syn(&mut nowhere.frame()).verdict, LEFT);
    }
}

#[test]
fn sources_from_where_nothing_comes_are_not_answered() {
    let mut rig = rig();
    for (from, goes) in [
        ("0.1.2.3", false),
        ("127.0.0.1", false),
        ("224.0.0.1", false),
        ("255.255.255.255", false),
        ("10.0.0.1", false),
        ("10.0.0.2", true),
        ("223.255.255.255", true),
        ("::", false),
        ("::1", false),
        ("::10.0.0.1", false),
        ("::ffff:10.0.0.9", false),
        ("ff02::1", false),
        ("fd00::1", false),
        ("fe80::1", false),
        ("fd00::2", true),
        ("::1:0:0:1", true),
    ] {
        let from: core::net::IpAddr = from.parse().unwrap();
        let sent = Sent { from, ..Sent::syn(from.is_ipv6(), &LINUX) };
        let got = rig.run_syn(&mut sent.frame()).verdict;
        assert_eq!(got, if goes { ANSWERED } else { LEFT }, "{from}");
    }
    let mut group = Sent::syn(false, &LINUX).frame();
    group[6] |= 1;
    assert_eq!(rig.run_syn(&mut group).verdict, LEFT);
}

#[test]
fn malformed_network_headers_are_left() {
    let mut rig = rig();
    let v4 = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Sent::syn(false, &LINUX).frame();
        change(&mut frame);
        frame
    };
    let mut left = vec![
        v4(&|it| it[14] = 0x46),
        v4(&|it| it[14] = 0x65),
        v4(&|it| it[17] += 1),
        v4(&|it| it[17] = 39),
        v4(&|it| it[20] = 0x20),
        v4(&|it| it[21] = 1),
        v4(&|it| it[23] = 17),
        v4(&|it| it[24] ^= 1),
        v4(&|it| it[46] = 0x40),
        v4(&|it| it[46] = 0xb0),
        v4(&|it| it[12] = 0x81),
    ];
    let v6 = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = Sent::syn(true, &LINUX).frame();
        change(&mut frame);
        frame
    };
    left.extend([
        v6(&|it| it[14] = 0x40),
        v6(&|it| it[19] += 1),
        v6(&|it| it[19] = 19),
        v6(&|it| it[20] = 0),
        v6(&|it| it[66] = 0x40),
        v6(&|it| it[66] = 0xf0),
    ]);
    for (n, frame) in left.iter().enumerate() {
        assert_eq!(both(&mut rig, frame).0, LEFT, "frame {n}");
    }
    assert_eq!(both(&mut rig, &v4(&|_| ())).0, ANSWERED);
    assert_eq!(both(&mut rig, &v6(&|_| ())).0, ANSWERED);
}

#[test]
fn a_plain_syn_is_found_at_a_glance_and_nothing_else_is() {
    let mut a = Assembler::new();
    let (syn, other) = (a.label(), a.label());
    a.load(AccessSize::Word, Register::R7, Register::R1, 0).load(
        AccessSize::Word,
        Register::R8,
        Register::R1,
        4,
    );
    find_syn(&mut a, syn, other);
    for (label, verdict) in [(syn, 1), (other, 0)] {
        a.place(label);
        a.set(Register::R0, verdict).exit();
    }
    let code = a.finish().unwrap();
    let found = |frame: &[u8]| Machine::new().run(&code, &mut frame.to_vec()).unwrap().verdict == 1;
    for v6 in [false, true] {
        for flags in 0..=u8::MAX {
            let frame = Sent { flags, ..Sent::syn(v6, &LINUX) }.frame();
            assert_eq!(found(&frame), flags & 0x17 == 2, "{flags:#04x}");
            for end in 0..frame.len() {
                assert!(!found(&frame[..end]) || end >= if v6 { 74 } else { 54 });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn no_change_of_any_bytes_leads_out_of_bounds(
        v6: bool, is_ack: bool, cut in 0_usize..140,
        changes in proptest::collection::vec((0_usize..120, any::<u8>()), 1..6),
    ) {
        thread_local! {
            static RIG: core::cell::RefCell<Rig> = core::cell::RefCell::new(rig());
        }
        let flags = if is_ack { 0x10 } else { 0x02 };
        let mut frame = Sent { flags, text: 30, ..Sent::syn(v6, &LINUX) }.frame();
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut.max(14));
        let before = frame.len();
        RIG.with_borrow_mut(|rig| {
            let mut answer = frame.clone();
            let syn = rig.run_syn(&mut answer).verdict;
            assert!(syn == LEFT && answer == frame || syn == ANSWERED && answer.len() <= before);
            rig.run_ack(&mut frame);
        });
    }
}
