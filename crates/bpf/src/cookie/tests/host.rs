//! The programs in front of the kernel's listeners, beside `syncache` with the same secret.

use core::net::{IpAddr, Ipv4Addr};

use floodwall_base::{Instant, Seq};
use floodwall_syncache::{AckOutcome, HalfOpen, HandshakeAck, ListenSettings, Proven};
use proptest::prelude::*;

use super::rig::*;
use crate::cookie::host::*;
use crate::cookie::{KEY_ENTRIES, KEY_WORDS, Offer};
use crate::interpreter::{Machine, Outcome, SocketModel, verdict};
use crate::{Assembler, Instruction};

const START: Instant = Instant::from_nanos(9_000_000_123_456_789);
const CLOCK: (u64, u64) = (11, 12);
const LISTENING: u32 = 10;
const FIELDS: ListenerFields = ListenerFields {
    ack_backlog: 0,
    max_ack_backlog: 4,
    half_open: 8,
    receive_buffer: 12,
    user_locks: 16,
    user_mss: 18,
    is_mptcp: Some(20),
};
pub(super) const NUMBER: u8 = 5;

/// Further addresses of ours, which tests put into the map: the filter has them from the start.
const OWN: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200)), IpAddr::V6(LINK_LOCAL)];

/// As IPv6 has it.
fn mapped(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().octets(),
        IpAddr::V6(addr) => addr.octets(),
    }
}

/// A machine with the programs in front of listeners at our addresses, and a cache.
pub(super) struct HostRig {
    pub(super) machine: Machine,
    pub(super) maps: HostMaps,
    classify: Vec<Instruction>,
    cache: Rig,
    ending: bool,
}

/// What a listener says of itself.
#[derive(Clone, Copy)]
struct Listener {
    waiting: u32,
    half_open: u32,
    buffer: Option<u32>,
    user_mss: u16,
    is_mptcp: bool,
}

const USUAL: Listener =
    Listener { waiting: 0, half_open: 0, buffer: None, user_mss: 0, is_mptcp: false };

fn settings() -> ListenSettings {
    ListenSettings {
        window: 64_240,
        window_scale: 10,
        mss: (1460, 1440),
        sack: true,
        timestamps: true,
        ecn: true,
        ..ListenSettings::new(100)
    }
}

fn code(compose: impl FnOnce(&mut Assembler)) -> Vec<Instruction> {
    let mut a = Assembler::new();
    compose(&mut a);
    a.finish().unwrap()
}

impl HostRig {
    pub(super) fn new(always: bool) -> Self {
        let mut machine = Machine::new();
        let maps = HostMaps {
            ports: machine.array(8, PORT_ENTRIES),
            settings: machine.array(SETTING_WORDS * 8, 1),
            scratch: machine.per_core_array(SCRATCH_BYTES, 1),
            keys: machine.per_core_array(KEY_WORDS * 8, KEY_ENTRIES),
            tallies: machine.per_core_array(Tally::WORDS * 8, PORTS_MAX),
            proofs: machine.array(8, PROOFS),
            buckets: machine.array(8, BUCKETS),
            sources: machine.array(8, SOURCES),
            ranked: machine.array(RANK_WORDS * 8, RANKED),
            addresses: machine.hash(16, 8, 16),
            programs: machine.programs(Program::COUNT),
        };
        machine.set_program(
            maps.programs,
            Program::Answer as usize,
            code(|a| answer_syn(a, &maps)),
        );
        machine.set_program(maps.programs, Program::Prove as usize, code(|a| prove_ack(a, &maps)));
        machine.set_program(
            maps.programs,
            Program::Share as usize,
            code(|a| share_datagrams(a, &maps)),
        );
        let behind = [
            (Program::Challenge, code(|a| challenge_source(a, &maps))),
            (Program::Remember, code(|a| remember_source(a, &maps))),
            (Program::Rank, code(|a| rank_source(a, &maps))),
        ];
        for (program, code) in behind {
            machine.set_program(maps.programs, program as usize, code);
        }
        let classify = code(|a| classify(a, &maps, &FIELDS));
        let port = u32::from(PORT).to_ne_bytes();
        assert!(machine.set(
            maps.ports,
            &port,
            &(u64::from(NUMBER) | u64::from(NUMBER) << 8).to_ne_bytes()
        ));
        machine.host.has_metadata = true;
        let cache = Rig::new(settings(), START);
        let mut rig = Self { machine, maps, classify, cache, ending: false };
        rig.tell(always, 1);
        rig.at(START);
        rig.listen(USUAL);
        rig
    }

    /// Writes the settings.
    fn tell(&mut self, always: bool, generation: u64) {
        let offer = |mss| Offer {
            window: 64_240,
            mss,
            window_scale: 10,
            sack: true,
            timestamps: true,
            ecn: true,
            hop_limit: 64,
            traffic_class: 0,
        };
        let settings = HostSettings {
            offer_v4: offer(1460).word(),
            offer_v6: offer(1440).word(),
            always,
            paused: false,
            ending: self.ending,
            wakes: 1342,
            watch_shift: 2,
            wall_offset: 0,
            generation,
            secret: secret(1).words(),
            clock: CLOCK,
            zone: ZONE.into(),
            interval: 1_000_000,
            burst: 10_000_000,
            unproven: 20,
            own_filter: OWN.iter().fold(0, |all, own| all | HostSettings::own_bit(mapped(*own))),
        };
        let bytes: Vec<u8> = settings.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert!(self.machine.set(self.maps.settings, &[0; 4], &bytes));
    }

    fn at(&mut self, now: Instant) {
        self.cache.at(now);
        self.machine.nanos = now.as_nanos();
    }

    pub(super) fn after(&mut self, millis: u64) {
        self.at(Instant::from_nanos(self.machine.nanos + millis * 1_000_000));
    }

    fn listen(&mut self, listener: Listener) {
        let mut fields = vec![0; 24];
        fields[..4].copy_from_slice(&listener.waiting.to_ne_bytes());
        fields[4..8].copy_from_slice(&128_u32.to_ne_bytes());
        fields[8..12].copy_from_slice(&listener.half_open.to_ne_bytes());
        fields[12..16].copy_from_slice(&listener.buffer.unwrap_or(131_072).to_ne_bytes());
        fields[16] = if listener.buffer.is_some() { 2 } else { 0 };
        fields[18..20].copy_from_slice(&listener.user_mss.to_ne_bytes());
        fields[20] = listener.is_mptcp.into();
        let socket = SocketModel { state: LISTENING, fields: Some(fields) };
        for addr in [IpAddr::V4(OURS.0), OURS.1.into(), LINK_LOCAL.into()] {
            let mut key = match addr {
                IpAddr::V4(addr) => addr.octets().to_vec(),
                IpAddr::V6(addr) => addr.octets().to_vec(),
            };
            key.extend(PORT.to_be_bytes());
            self.machine.host.listeners.insert(key, socket.clone());
        }
    }

    pub(super) fn run(&mut self, frame: &mut Vec<u8>) -> Outcome {
        let code = core::mem::take(&mut self.classify);
        let outcome = self.machine.run(&code, frame);
        self.classify = code;
        outcome.unwrap()
    }

    pub(super) fn counted(&mut self, tally: Tally) -> u64 {
        let key = u32::from(NUMBER).to_ne_bytes();
        self.machine.word(self.maps.tallies, &key, tally as usize).unwrap()
    }

    fn verdict(&mut self, sent: &Sent) -> u64 {
        self.run(&mut sent.frame()).verdict
    }

    /// The note behind an ACK: word 1, and the timestamps as they lie in the frame.
    fn note(&self) -> Option<[u32; 4]> {
        let note = self.machine.metadata.get(16..32)?;
        Some(core::array::from_fn(|n| u32::from_ne_bytes(*note[n * 4..].first_chunk().unwrap())))
    }
}

fn long(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*frame[at..].first_chunk().unwrap())
}

fn half(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(*frame[at..].first_chunk().unwrap())
}

/// Where an answer's timestamp lies, if it has one.
fn timestamp_at(l4: usize, answer: &[u8]) -> Option<usize> {
    let mut at = l4 + 20;
    while let Some(kind) = answer.get(at) {
        match kind {
            0 | 1 => at += 1,
            8 => return Some(at + 2),
            _ => at += usize::from(answer[at + 1]),
        }
    }
    None
}

/// An answer without what differs by the clock.
fn without_clock(v6: bool, mut answer: Vec<u8>) -> Vec<u8> {
    let l4 = if v6 { 54 } else { 34 };
    if let Some(at) = timestamp_at(l4, &answer) {
        answer[at..at + 3].fill(0);
        answer[at + 3] &= 0x3f;
    }
    answer[l4 + 16..l4 + 18].fill(0);
    answer
}

/// The ACK of a client to an answer.
fn ack_of(sent: &Sent, answer: &[u8]) -> Sent {
    let l4 = if sent.from.is_ipv4() { 34 } else { 54 };
    let options = timestamp_at(l4, answer)
        .map_or_else(Vec::new, |at| [&[1, 1, 8, 10, 1, 2, 3, 9], &answer[at..at + 4]].concat());
    let (seq, ack) = (long(answer, l4 + 8), long(answer, l4 + 4).wrapping_add(1));
    Sent { seq, ack, flags: 0x10, options, ..sent.clone() }
}

fn proven_by_cache(rig: &mut Rig, sent: &Sent) -> Proven {
    let timestamp =
        (sent.options.len() == 12).then(|| (long(&sent.options, 4), long(&sent.options, 8)));
    let ack = HandshakeAck { flow: sent.flow(), seq: Seq(sent.seq), ack: Seq(sent.ack), timestamp };
    let (listener, at) = (rig.listener, rig.moment());
    let AckOutcome::Proven(proven) = rig.cache.ack(listener, &ack, at) else {
        panic!("the cache does not believe {sent:?}")
    };
    rig.cache.accepted(proven.slot());
    proven
}

prop_compose! {
    fn any_syn()(
        v6: bool, seq: u32, port in 1_u16.., mss in 536_u16..9100, scale in 0_u8..=14,
        which in 0_u8..16, ecn: bool, host: u16,
    ) -> Sent {
        let mut options = Vec::new();
        let mss = if v6 { mss.max(1220) } else { mss };
        if which & 1 != 0 || v6 {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if which & 2 != 0 {
            options.extend([4, 2, 1, 1]);
        }
        if which & 4 != 0 {
            options.extend([1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0]);
        }
        if which & 8 != 0 {
            options.extend([1, 3, 3, scale]);
        }
        let [a, b] = host.to_be_bytes();
        let from: IpAddr = match v6 {
            false => [192, 0, a, b].into(),
            true => core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, host, 9).into(),
        };
        let flags = if ecn { 0xc2 } else { 2 };
        Sent { from, seq, ports: (port, PORT), flags, ..Sent::syn(v6, &options) }
    }
}

thread_local! {
    static RIG: core::cell::RefCell<HostRig> = core::cell::RefCell::new(HostRig::new(true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn random_handshakes_are_those_of_the_stack(sent in any_syn(), step in 0_u64..40_000) {
        RIG.with_borrow_mut(|rig| {
            rig.after(step);
            let v6 = !sent.from.is_ipv4();
            let wanted = rig.cache.cache_answers(&sent).unwrap();
            let mut answer = sent.frame();
            let before = answer.len();
            prop_assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
            prop_assert!(answer.len() <= before);
            prop_assert_eq!(without_clock(v6, answer.clone()), without_clock(v6, wanted));
            // What comes back is believed by both, and says the same.
            let ack = ack_of(&sent, &answer);
            prop_assert_eq!(rig.verdict(&ack), verdict::PASS);
            let [head, word, value, echo] = rig.note().expect("a note");
            let proven = proven_by_cache(&mut rig.cache, &ack);
            prop_assert_eq!(head, 0x4657_6700 | u32::from(NUMBER));
            prop_assert_eq!(word & 0xffff, u32::from(proven.mss().0));
            let scales = proven.window_scale().map(|(theirs, ours)| (ours, theirs));
            let said = ((word >> 16 & 0xf) as u8, (word >> 20 & 0xf) as u8);
            prop_assert_eq!((word >> 25 & 1 != 0).then_some(said), scales);
            prop_assert_eq!(word >> 26 & 1 != 0, proven.sack());
            prop_assert_eq!(word >> 24 & 1 != 0, proven.ecn());
            prop_assert_eq!(word >> 27 & 1 != 0, ack.options.len() == 12);
            if ack.options.len() == 12 {
                prop_assert_eq!(value, long(&ack.options, 4).to_be());
                prop_assert_eq!(echo, long(&ack.options, 8).to_be());
            }
            Ok(())
        })?;
    }
}

const LINUX: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];

/// An answered SYN and the ACK to it.
fn handshake(rig: &mut HostRig, v6: bool) -> Sent {
    let sent = Sent::syn(v6, &LINUX);
    let mut answer = sent.frame();
    assert_eq!(rig.run(&mut answer).verdict, verdict::TRANSMIT);
    ack_of(&sent, &answer)
}

#[test]
fn the_second_segment_of_a_burst_passes_without_a_note() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        let ack = handshake(&mut rig, v6);
        assert_eq!((rig.verdict(&ack), rig.note().is_some()), (verdict::PASS, true));
        // The same number in the same poll, with data; and what follows that data.
        let data = Sent { text: 9, ..ack.clone() };
        assert_eq!((rig.verdict(&data), rig.note()), (verdict::PASS, None));
        let more = Sent { seq: ack.seq + 9, text: 9, ..ack.clone() };
        assert_eq!((rig.verdict(&more), rig.note()), (verdict::PASS, None));
        rig.after(30);
        assert_eq!((rig.verdict(&more), rig.note()), (verdict::PASS, None), "known for a second");
        assert_eq!((rig.verdict(&ack), rig.note().is_some()), (verdict::PASS, true), "sent again");
        rig.after(1_100);
        assert_eq!(rig.verdict(&more), verdict::DROP, "of no connection any more");
        assert_eq!(rig.counted(Tally::Repeated), 3);
        assert_eq!(rig.counted(Tally::Refused), 1);
        // Another flow with the same number has no proof.
        let other = Sent { ports: (4712, PORT), ..ack };
        assert_eq!(rig.verdict(&other), verdict::DROP);
    }
}

#[test]
fn on_another_core_the_second_segment_of_a_burst_has_a_note_of_its_own() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        let ack = handshake(&mut rig, v6);
        assert_eq!((rig.verdict(&ack), rig.note().is_some()), (verdict::PASS, true));
        rig.machine.core = 1;
        let data = Sent { text: 9, ..ack.clone() };
        assert_eq!((rig.verdict(&data), rig.note().is_some()), (verdict::PASS, true));
        // What follows has no cookie's number, and a proof on each core.
        let more = Sent { seq: ack.seq + 9, text: 9, ..ack.clone() };
        assert_eq!((rig.verdict(&more), rig.note()), (verdict::PASS, None));
        rig.machine.core = 0;
        assert_eq!((rig.verdict(&more), rig.note()), (verdict::PASS, None));
    }
}

#[test]
fn asleep_syns_pass_until_the_listener_has_too_many_half_open() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(false);
        let sent = Sent::syn(v6, &LINUX);
        rig.listen(Listener { half_open: 32, ..USUAL });
        assert_eq!(rig.verdict(&sent), verdict::PASS);
        rig.listen(Listener { half_open: 33, ..USUAL });
        assert_eq!(rig.verdict(&sent), verdict::TRANSMIT, "a quarter of 128 is passed");
        rig.listen(USUAL);
        rig.after(9_900);
        assert_eq!(rig.verdict(&sent), verdict::TRANSMIT, "for ten seconds");
        rig.after(200);
        assert_eq!(rig.verdict(&sent), verdict::PASS, "asleep again");
        assert_eq!((rig.counted(Tally::Woken), rig.counted(Tally::Asleep)), (1, 2));
        // Many SYNs wake it as well.
        let woken = (0..2_000).find(|_| rig.verdict(&sent) == verdict::TRANSMIT);
        assert_eq!(woken, Some(1_340), "the 1,342nd of its window, with the one before");
    }
}

#[test]
fn cookies_of_the_kernel_are_honoured_while_they_can_come() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(false);
        let forged = Sent { flags: 0x10, ack: 77, ..Sent::syn(v6, &[]) };
        assert_eq!(rig.verdict(&forged), verdict::DROP);
        rig.machine.host.has_cookies = true;
        assert_eq!(rig.verdict(&forged), verdict::PASS, "asleep");
        rig.listen(Listener { half_open: 100, ..USUAL });
        let sent = Sent::syn(v6, &LINUX);
        for _ in 0..8 {
            assert_eq!(rig.verdict(&sent), verdict::TRANSMIT);
            assert_eq!(rig.verdict(&forged), verdict::PASS, "within a minute of waking");
            rig.after(8_000);
        }
        assert_eq!(rig.verdict(&sent), verdict::TRANSMIT);
        assert_eq!(rig.verdict(&forged), verdict::DROP, "awake for longer");
        assert_eq!(rig.counted(Tally::KernelCookie), 9);
    }
}

#[test]
fn what_belongs_to_no_connection_is_dropped_and_what_does_passes() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        for flags in [0x04, 0x14, 0x12, 0x00, 0x01, 0x06, 0x03] {
            assert_eq!(
                rig.verdict(&Sent { flags, ..Sent::syn(v6, &[]) }),
                verdict::DROP,
                "{flags}"
            );
        }
        assert_eq!(rig.counted(Tally::Stray), 7);
        let mine = Sent { flags: 0x10, ports: (99, PORT), ..Sent::syn(v6, &[]) };
        let frame = mine.frame();
        let tuple = if v6 { &frame[22..58] } else { &frame[26..38] };
        let socket = SocketModel { state: 1, fields: None };
        rig.machine.host.connections.insert(tuple.to_vec(), socket);
        assert_eq!(rig.verdict(&mine), verdict::PASS);
        let elsewhere = Sent { ports: (99, 81), ..Sent::syn(v6, &[]) };
        assert_eq!(rig.verdict(&elsewhere), verdict::PASS, "another port");
        rig.machine.host.listeners.clear();
        assert_eq!(rig.verdict(&Sent::syn(v6, &LINUX)), verdict::PASS, "no listener");
    }
}

#[test]
fn a_listeners_own_settings_are_obeyed() {
    for v6 in [false, true] {
        let l4 = if v6 { 54 } else { 34 };
        let mut rig = HostRig::new(true);
        let sent = Sent::syn(v6, &LINUX);
        let answer = |rig: &mut HostRig| {
            let mut frame = sent.frame();
            let verdict = rig.run(&mut frame).verdict;
            (verdict, half(&frame, l4 + 14), half(&frame, l4 + 22), frame[frame.len() - 1])
        };
        let mss = if v6 { 1440 } else { 1460 };
        assert_eq!(answer(&mut rig), (verdict::TRANSMIT, 64_240, mss, 10));
        rig.listen(Listener { user_mss: 1300, ..USUAL });
        assert_eq!(answer(&mut rig).2, 1300);
        rig.listen(Listener { user_mss: 500, ..USUAL });
        assert_eq!(answer(&mut rig).0, verdict::PASS, "below what the kernel takes of a cookie");
        for (buffer, window, scale) in [
            (8192, 4096 / mss * mss, 0),
            (131_072, 64_240, 1),
            (262_144, 64_240, 2),
            (4 << 20, 64_240, 6),
        ] {
            rig.listen(Listener { buffer: Some(buffer), ..USUAL });
            let wanted = (verdict::TRANSMIT, window, mss, scale);
            assert_eq!(answer(&mut rig), wanted, "a buffer of {buffer}");
        }
        rig.listen(Listener { is_mptcp: true, ..USUAL });
        assert_eq!(answer(&mut rig).0, verdict::PASS);
        assert_eq!(rig.counted(Tally::Multipath), 1);
        rig.listen(Listener { waiting: 129, ..USUAL });
        assert_eq!(answer(&mut rig).0, verdict::DROP, "the accept queue is full");
        rig.listen(Listener { waiting: 128, ..USUAL });
        assert_eq!(answer(&mut rig).0, verdict::TRANSMIT);
    }
}

#[test]
fn what_no_cookie_can_stand_for_goes_to_the_kernel() {
    let mut rig = HostRig::new(true);
    let small: &[u8] = &[2, 4, 2, 0];
    let signed: &[u8] = &[19, 18, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    let newer: &[u8] = &[29, 4, 0, 0];
    for v6 in [false, true] {
        for options in [small, signed, newer] {
            assert_eq!(rig.verdict(&Sent::syn(v6, options)), verdict::PASS, "{options:?}");
        }
    }
    for (v6, addr) in [false, true].into_iter().zip(OWN) {
        let own = Sent { from: addr, ..Sent::syn(v6, &LINUX) };
        assert_eq!(rig.verdict(&own), verdict::TRANSMIT, "{addr} is not ours yet");
        assert!(rig.machine.set(rig.maps.addresses, &mapped(addr), &[0; 8]));
        assert_eq!(rig.verdict(&own), verdict::PASS, "{addr} is ours");
    }
    assert_eq!(rig.counted(Tally::Left), 8);
    // Not more than the kernel is to be bothered with, and others are answered meanwhile.
    let passed = (0..1000).filter(|_| rig.verdict(&Sent::syn(true, small)) == verdict::PASS);
    assert_eq!(passed.count() as u64, LEFT_MAX - 8);
    assert_eq!(rig.counted(Tally::LeftRefused), 1000 + 8 - LEFT_MAX);
    assert_eq!(rig.verdict(&Sent::syn(true, &LINUX)), verdict::TRANSMIT);
    rig.after(140);
    assert_eq!(rig.verdict(&Sent::syn(true, small)), verdict::PASS);
}

#[test]
fn a_vlan_tag_is_kept_in_the_answer_and_an_ack_behind_one_is_believed() {
    let tagged = |sent: &Sent| {
        let mut frame = sent.frame();
        frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        frame
    };
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        let sent = Sent::syn(v6, &LINUX);
        let (mut plain, mut frame) = (sent.frame(), tagged(&sent));
        assert_eq!(rig.run(&mut plain).verdict, verdict::TRANSMIT);
        assert_eq!(rig.run(&mut frame).verdict, verdict::TRANSMIT);
        assert_eq!(frame[12..16], [0x81, 0x00, 0x00, 0x05]);
        let ack = ack_of(&sent, &plain);
        frame.drain(12..16);
        assert_eq!(frame, plain);
        assert_eq!(rig.run(&mut tagged(&ack)).verdict, verdict::PASS);
        assert!(rig.note().is_some());
        // Two tags are not looked behind.
        let mut twice = tagged(&sent);
        twice.splice(12..12, [0x88, 0xa8, 0x00, 0x05]);
        assert_eq!(rig.run(&mut twice).verdict, verdict::PASS);
    }
}

#[test]
fn keys_turn_without_user_space_and_a_new_secret_is_obeyed() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        let ack = handshake(&mut rig, v6);
        rig.after(15_000);
        assert_eq!(rig.verdict(&ack), verdict::PASS, "of the last epoch");
        let again = handshake(&mut rig, v6);
        rig.after(30_000);
        assert_eq!(rig.verdict(&again), verdict::DROP, "two epochs later");
        let fresh = handshake(&mut rig, v6);
        let other = Sent { ports: (4712, PORT), ..fresh.clone() };
        assert_eq!(rig.verdict(&other), verdict::DROP);
        // A generation that is new has the keys derived, here of the same secret.
        rig.tell(true, 2);
        assert_eq!(rig.verdict(&fresh), verdict::PASS);
    }
}

#[test]
fn at_its_end_it_redeems_what_it_has_given_and_gives_no_more() {
    for v6 in [false, true] {
        let mut rig = HostRig::new(true);
        let ack = handshake(&mut rig, v6);
        rig.ending = true;
        rig.tell(true, 1);
        assert_eq!(rig.verdict(&Sent::syn(v6, &LINUX)), verdict::PASS);
        assert_eq!((rig.verdict(&ack), rig.note().is_some()), (verdict::PASS, true));
        assert_eq!(rig.counted(Tally::Answered), 1);
    }
}

#[test]
fn a_driver_without_metadata_is_counted() {
    let mut rig = HostRig::new(true);
    rig.machine.host.has_metadata = false;
    let ack = handshake(&mut rig, false);
    assert_eq!((rig.verdict(&ack), rig.note()), (verdict::PASS, None));
    assert_eq!(rig.counted(Tally::NoMetadata), 1);
}

#[test]
fn a_prefix_has_its_credit_of_datagrams_and_takes_none_of_others() {
    // A segment with the protocol's number changed: only the ports are looked at.
    let frame = |from: &str, v6: bool| {
        let sent = Sent { from: from.parse().unwrap(), ..Sent::syn(v6, &[]) };
        let mut frame = sent.frame();
        frame[if v6 { 20 } else { 23 }] = 17;
        frame
    };
    for (v6, [one, same, other]) in [
        (false, ["192.0.2.9", "192.0.2.200", "192.0.3.9"]),
        (true, ["2001:db8::9", "2001:db8::77:1", "2001:db8:0:1::9"]),
    ] {
        let mut rig = HostRig::new(true);
        // Ten milliseconds of one a millisecond, and the one that is due.
        let passed = |rig: &mut HostRig, from| {
            (0..40).filter(|_| rig.run(&mut frame(from, v6)).verdict == verdict::PASS).count()
        };
        assert_eq!(passed(&mut rig, one), 11);
        assert_eq!(passed(&mut rig, same), 0, "of the same prefix");
        assert_eq!(passed(&mut rig, other), 11);
        rig.after(5);
        assert_eq!(passed(&mut rig, same), 5);
        rig.after(1000);
        assert_eq!(passed(&mut rig, one), 11, "no more is saved up");
        assert_eq!(rig.counted(Tally::Datagrams), 38);
        assert_eq!(rig.counted(Tally::Uncredited), 5 * 40 - 38);
        let mut elsewhere = frame(one, v6);
        let port = if v6 { 56 } else { 36 };
        elsewhere[port..port + 2].copy_from_slice(&81_u16.to_be_bytes());
        assert_eq!(rig.run(&mut elsewhere).verdict, verdict::PASS, "another port");
    }
}

#[test]
fn random_bytes_are_no_fault() {
    let mut rig = HostRig::new(true);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..20_000_u32 {
        let mut frame = Sent::syn(round % 2 == 1, &LINUX).frame();
        for _ in 0..3 {
            state =
                state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let at = (state >> 33) as usize % frame.len();
            frame[at] = (state >> 20) as u8;
        }
        frame.truncate((state >> 40) as usize % (frame.len() + 20));
        // Any verdict but a fault, which `run` would report.
        rig.run(&mut frame);
    }
}
