//! What becomes of packets at the program, by the interpreter.

use super::*;
use crate::interpreter::{Machine, Outcome, Target, verdict};

const OUT: u32 = 3;
const NOW: u64 = 1_000_000;
const PRESENT_GENERATION: u64 = 7;
const TO: [u8; 6] = [2, 0, 0, 0, 0, 0x22];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 0x11];
const KEY_OF_TEST: [u64; KEY_WORDS] = [3, 5, 7, 11, 13, 17, 19, 23, 29];

/// A program that only redirects, and its maps.
struct Router {
    machine: Machine,
    code: Vec<crate::Instruction>,
    board: i32,
    entries: i32,
    interfaces: i32,
}

impl Router {
    fn new() -> Self {
        let mut machine = Machine::new();
        machine.nanos = NOW;
        let board = machine.array(BOARD_WORDS * 8, 1);
        let entries = machine.array(WAYS * ENTRY_WORDS * 8, SETS);
        let interfaces = machine.sockets(8);
        machine.set_socket(interfaces, OUT as usize);
        machine.set_word(board, &[0; 4], ACTIVE, 1);
        machine.set_word(board, &[0; 4], GENERATION, PRESENT_GENERATION);
        let mut a = Assembler::new();
        let on = a.label();
        a.copy(Register::R6, Register::R1);
        emit(&mut a, &RedirectMaps { board, entries, interfaces, key: &KEY_OF_TEST }, on);
        a.place(on);
        a.set(Register::R0, verdict::PASS as i32).exit();
        let code = a.finish().unwrap();
        Self { machine, code, board, entries, interfaces }
    }

    /// An entry for the addresses of a frame, in a way of its set.
    fn enter(&mut self, frame: &[u8], way: usize, changed: &[(usize, u64)]) {
        let is_v6 = frame[12] == 0x86;
        let addresses = if is_v6 { &frame[22..54] } else { &frame[26..34] };
        let words = addresses.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let tag = tag_of(&KEY_OF_TEST, words);
        let mut entry = [0_u64; ENTRY_WORDS];
        entry[TAG] = tag;
        entry[MADE_UNDER] = PRESENT_GENERATION;
        entry[UNTIL] = NOW + 1;
        entry[MTU] = 1500;
        entry[SLOT] = OUT.into();
        entry[FAMILY] = if is_v6 { 6 } else { 4 };
        for (place, bytes) in entry[ADDRESSES..].iter_mut().zip(addresses.chunks(8)) {
            *place = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        let mut stations = [0; 16];
        stations[..6].copy_from_slice(&TO);
        stations[6..12].copy_from_slice(&FROM);
        for (place, bytes) in entry[STATIONS..].iter_mut().zip(stations.chunks(8)) {
            *place = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        changed.iter().for_each(|(word, value)| entry[*word] = *value);
        let set = (set_of(tag) as u32).to_ne_bytes();
        for (number, value) in entry.into_iter().enumerate() {
            self.machine.set_word(self.entries, &set, way * ENTRY_WORDS + number, value);
        }
    }

    fn run(&mut self, frame: &mut Vec<u8>) -> Outcome {
        self.machine.run(&self.code, frame).unwrap()
    }

    /// Whether the frame is redirected; one that is not must be as it was.
    fn redirects(&mut self, frame: &[u8]) -> bool {
        let mut after = frame.to_vec();
        let out = self.run(&mut after);
        if out.verdict == verdict::PASS {
            assert_eq!(after, frame, "it goes on as it came");
        }
        out.verdict == verdict::REDIRECT
    }
}

/// A one's complement sum of 16-bit words, folded.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut all = words.sum::<u64>();
    while all > 0xffff {
        all = (all & 0xffff) + (all >> 16);
    }
    all as u16
}

fn set_sum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let value = !sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&value.to_be_bytes());
}

fn frame(v6: bool, protocol: u8, hops: u8, payload: usize) -> Vec<u8> {
    let upper = if protocol == 6 { 20 } else { 8 } + payload;
    let mut bytes = [[2, 9, 9, 9, 9, 1], [2, 9, 9, 9, 9, 2]].concat();
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend((upper as u16).to_be_bytes());
        bytes.extend([protocol, hops]);
        bytes.extend((0..32).map(|n| n + 1));
    } else {
        bytes.extend([0x08, 0x00, 0x45, 0]);
        bytes.extend((20 + upper as u16).to_be_bytes());
        bytes.extend([0, 1, 0x40, 0, hops, protocol, 0, 0, 10, 1, 2, 3, 10, 9, 8, 7]);
        set_sum(&mut bytes);
    }
    bytes.extend((0..upper).map(|n| n as u8 | 1));
    bytes
}

const KINDS: [(bool, u8); 4] = [(false, 17), (false, 6), (true, 17), (true, 6)];

#[test]
fn a_packet_of_a_pair_leaves_with_new_stations_and_one_hop_less() {
    for (v6, protocol) in KINDS {
        for hops in [2, 3, 64, 128, 255] {
            // Every header sum, so that the carry is met.
            for number in (0..if v6 { 1 } else { u16::MAX }).step_by(251) {
                let mut before = frame(v6, protocol, hops, 30);
                if !v6 {
                    before[18..20].copy_from_slice(&number.to_be_bytes());
                    set_sum(&mut before);
                }
                let mut router = Router::new();
                router.enter(&before, 2, &[]);
                let mut after = before.clone();
                let out = router.run(&mut after);
                let target = Target::Socket { map: router.interfaces, key: OUT };
                assert_eq!((out.verdict, out.target), (verdict::REDIRECT, Some(target)));
                let mut wanted = before.clone();
                wanted[..6].copy_from_slice(&TO);
                wanted[6..12].copy_from_slice(&FROM);
                let at = if v6 { 21 } else { 22 };
                wanted[at] -= 1;
                if !v6 {
                    assert_eq!(sum(&after[14..34]), 0xffff, "the header sum is right");
                    wanted[24..26].copy_from_slice(&after[24..26]);
                }
                assert_eq!(after, wanted, "and nothing else has changed");
                let board = |word| router.machine.clone().word(router.board, &[0; 4], word);
                assert_eq!(board(PACKETS), Some(1));
                assert_eq!(board(BYTES), Some(before.len() as u64));
            }
        }
    }
}

/// Each of these is the router's to decide.
#[test]
fn what_a_header_makes_special_goes_up_unchanged() {
    for (v6, protocol) in KINDS {
        let plain = frame(v6, protocol, 64, 30);
        let mut router = Router::new();
        router.enter(&plain, 0, &[]);
        assert!(router.redirects(&plain));
        let mut changed = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = plain.clone();
            change(&mut frame);
            assert!(!router.redirects(&frame), "{what}, IPv6 {v6}, protocol {protocol}");
        };
        for hops in [0, 1] {
            changed("its hop limit is used up", &|f| {
                f[if v6 { 21 } else { 22 }] = hops;
                if !v6 {
                    set_sum(f);
                }
            });
        }
        changed("another protocol", &|f| {
            f[if v6 { 20 } else { 23 }] = if v6 { 58 } else { 1 };
            if !v6 {
                set_sum(f);
            }
        });
        changed("cut", &|f| f.truncate(f.len() - 1));
        changed("a group sent it", &|f| f[6] |= 1);
        changed("a tag", &|f| f[12..14].copy_from_slice(&[0x81, 0]));
        changed("another version", &|f| f[14] = 0x55);
        changed("other addresses", &|f| {
            f[if v6 { 53 } else { 33 }] ^= 1;
            if !v6 {
                set_sum(f);
            }
        });
        if v6 {
            changed("an extension header", &|f| f[20] = 0);
        } else {
            changed("a wrong header sum", &|f| f[24] ^= 1);
            changed("more follows", &|f| {
                f[20] = 0x20;
                set_sum(f);
            });
            changed("a later piece", &|f| {
                f[21] = 1;
                set_sum(f);
            });
            changed("options", &|f| {
                f[14] = 0x46;
                set_sum(f);
            });
        }
        for len in 0..plain.len() {
            changed("cut anywhere", &|f| f.truncate(len.max(14)));
        }
    }
}

#[test]
fn a_checksum_that_a_card_should_complete_goes_up() {
    for (v6, protocol) in KINDS {
        let mut frame = frame(v6, protocol, 64, 31);
        let mut router = Router::new();
        router.enter(&frame, 0, &[]);
        let (addresses, l4) = if v6 { (22..54, 54) } else { (26..34, 34) };
        let mut pseudo = frame[addresses].to_vec();
        pseudo.extend([0, protocol]);
        pseudo.extend(((frame.len() - l4) as u16).to_be_bytes());
        let at = l4 + if protocol == 6 { 16 } else { 6 };
        frame[at..at + 2].copy_from_slice(&sum(&pseudo).to_be_bytes());
        assert!(!router.redirects(&frame), "IPv6 {v6}, protocol {protocol}");
        frame[at] ^= 1;
        assert!(router.redirects(&frame), "IPv6 {v6}, protocol {protocol}");
    }
}

#[test]
fn an_entry_is_in_force_under_its_generation_and_until_it_expires() {
    for (v6, protocol) in KINDS {
        let plain = frame(v6, protocol, 64, 30);
        let of = |changed: &[(usize, u64)]| {
            let mut router = Router::new();
            router.enter(&plain, 3, changed);
            router.redirects(&plain)
        };
        assert!(of(&[]));
        assert!(!of(&[(MADE_UNDER, PRESENT_GENERATION - 1)]), "another generation");
        assert!(!of(&[(UNTIL, NOW)]), "expired");
        assert!(!of(&[(FAMILY, if v6 { 4 } else { 6 })]), "of the other family");
        assert!(!of(&[(SLOT, 4)]), "no such interface");
        assert!(!of(&[(SLOT, 99)]), "no such slot");
        // The hash is the same, the addresses are not.
        assert!(!of(&[(ADDRESSES, 0)]), "of another pair");
        let len = plain.len() as u64 - 14;
        assert!(of(&[(MTU, len)]), "it just fits");
        assert!(!of(&[(MTU, len - 1)]), "too long for the next link");
        let mut asleep = Router::new();
        asleep.enter(&plain, 0, &[]);
        asleep.machine.set_word(asleep.board, &[0; 4], ACTIVE, 0);
        assert!(!asleep.redirects(&plain), "there are no entries");
    }
}

#[test]
fn padding_goes_along_and_no_bytes_fail_the_program() {
    let mut short = frame(false, 17, 64, 0);
    let mut router = Router::new();
    router.enter(&short, 0, &[]);
    short.resize(60, 0);
    assert!(router.redirects(&short));
    // Any bytes: no fault, and nothing is redirected.
    let mut state = 1_u64;
    for _ in 0..2000 {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let len = 14 + usize::from(next()) % 80;
        let mut bytes: Vec<u8> = (0..len).map(|_| next()).collect();
        bytes[12..14].copy_from_slice(if next() & 1 == 0 { &[8, 0] } else { &[0x86, 0xdd] });
        assert!(!router.redirects(&bytes));
    }
}
