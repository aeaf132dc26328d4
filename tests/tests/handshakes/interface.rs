//! Handshakes that begin at the interface: the programs of crate `bpf`, told by the stack, answer
//! as the stack does, and the stack believes what they made.
//!
//! The programs run in the interpreter, so these need no privilege; the kernel runs the same ones
//! in `device`.

mod damaged;

use std::time::Duration;

use floodwall_base::{Family, IfIndex, Instant};
use floodwall_bpf::cookie::{
    AckWays, Desk, KEY_ENTRIES, KEY_WORDS, KeyTable, LISTENER_KEY_BYTES, Maps, Offer,
    SCRATCH_BYTES, SynWays, answer_syn, check_ack, listener_key,
};
use floodwall_bpf::interpreter::Machine;
use floodwall_bpf::{Assembler, Instruction, Register};
use floodwall_packet::{Engine as _, PacketBuf, SynOffers, Triage};
use floodwall_stack::AccessRule;
use floodwall_stack::tcp_set::{CookiePolicy, Secret};
use floodwall_tcp::TcpSettings;
use floodwall_tests::Rig;
use floodwall_tests::craft::{self, FAMILIES, HOST, PEER};
use floodwall_tests::tcp::{Heard, TcpClient, heard_in};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{TcpOptionSet, Timestamps};

use crate::{HELLO, PORT, accept, answer, client, config, listen, read, rig, server};

const ETH0: IfIndex = IfIndex(1);
const ANSWERED: u64 = 3;
const PROVEN: u64 = 20;
const FORGED: u64 = 21;

/// The programs and their maps, as told by a stack.
struct Interface {
    machine: Machine,
    syn: Vec<Instruction>,
    ack: Vec<Instruction>,
    maps: Maps,
    now: Instant,
}

fn offers(rig: &Rig) -> SynOffers {
    let mut offers = SynOffers::default();
    rig.stack.syn_offers(rig.now, ETH0, &mut offers);
    offers
}

impl Interface {
    /// Awake, with what the stack offers now.
    fn new(rig: &Rig) -> Self {
        let mut machine = Machine::new();
        let maps = Maps {
            desks: machine.array(Desk::WORDS * 8, 1),
            scratch: machine.per_core_array(SCRATCH_BYTES, 1),
            keys: machine.array(KEY_WORDS * 8, KEY_ENTRIES),
            listeners: machine.hash(LISTENER_KEY_BYTES, 8, 64),
            addresses: None,
            samples: None,
        };
        machine.set_word(maps.desks, &[0; 4], Desk::Pressed as usize, 1);
        let mut it = Self { machine, syn: syns(&maps), ack: acks(&maps), maps, now: rig.now };
        it.tell(rig);
        it
    }

    fn tell(&mut self, rig: &Rig) {
        let offers = offers(rig);
        (self.now, self.machine.nanos) = (rig.now, rig.now.as_nanos());
        let keys = offers.keys.expect("keys");
        for (epoch, key) in keys.by_epoch() {
            self.put(KeyTable::entry_of(epoch), &KeyTable::key(key));
        }
        let until = KeyTable::until(keys.epoch, keys.until.as_nanos());
        self.put(0, &KeyTable::header(until, keys.clock, offers.zone.0));
        for offer in offers.listeners() {
            let word = Offer {
                window: offer.window,
                mss: offer.mss,
                window_scale: offer.window_scale,
                sack: offer.sack,
                timestamps: offer.timestamps,
                ecn: offer.ecn,
                hop_limit: offer.hop_limit,
                traffic_class: offer.traffic_class,
            };
            let key = listener_key(offer.addr, offer.port);
            assert!(self.machine.set(self.maps.listeners, &key, &word.word().to_ne_bytes()));
        }
    }

    fn put(&mut self, entry: usize, words: &[u64]) {
        for (number, word) in words.iter().enumerate() {
            let key = (entry as u32).to_ne_bytes();
            self.machine.set_word(self.maps.keys, &key, number, *word);
        }
    }

    /// The answer to a SYN.
    fn answers(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let mut frame = frame.to_vec();
        let verdict = self.machine.run(&self.syn, &mut frame).unwrap().verdict;
        (verdict == ANSWERED).then_some(frame)
    }

    /// What is said of an ACK.
    fn judges(&mut self, frame: &[u8]) -> u64 {
        self.machine.run(&self.ack, &mut frame.to_vec()).unwrap().verdict
    }

    fn hears(&mut self, it: &TcpClient) -> Heard {
        heard_in(&self.answers(&it.syn()).expect("an answer")).expect("a SYN-ACK")
    }
}

fn syns(maps: &Maps) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let ways =
        SynWays { answered: a.label(), asleep: a.label(), left: a.label(), broken: a.label() };
    answer_syn(&mut a, maps, &ways);
    a.place(ways.answered);
    a.set(Register::R0, ANSWERED as i32).exit();
    [ways.asleep, ways.left, ways.broken].into_iter().for_each(|label| a.place(label));
    a.set(Register::R0, 1).exit();
    a.finish().unwrap()
}

fn acks(maps: &Maps) -> Vec<Instruction> {
    let mut a = Assembler::new();
    let ways = AckWays { proven: a.label(), forged: a.label(), stray: a.label() };
    check_ack(&mut a, maps, &ways);
    for (label, verdict) in [(ways.proven, PROVEN), (ways.forged, FORGED), (ways.stray, 1)] {
        a.place(label);
        a.set(Register::R0, verdict as i32).exit();
    }
    a.finish().unwrap()
}

fn bytes_of(packets: &[PacketBuf]) -> Vec<u8> {
    let [packet] = packets else { panic!("{} packets", packets.len()) };
    packet.chunks().flatten().copied().collect()
}

/// MSS x scale x SACK x timestamps x ECN, both families: byte for byte the frame that the stack's
/// own cookie answer is.
#[test]
fn the_interface_answers_as_the_stack_does_by_cookie() {
    let (mut rig, listener) = server(8);
    rig.sockets(|s| s.tcp_set_cookies(listener, CookiePolicy::Always).unwrap());
    let mut interface = Interface::new(&rig);
    let stamp = Timestamps { value: 77, echo: 0 };
    let mut compared = 0;
    for family in FAMILIES {
        for mss in [None, Some(0), Some(536), Some(1400), Some(1460), Some(9000)] {
            for window_scale in [None, Some(0), Some(7), Some(14), Some(200)] {
                for n in 0..8 {
                    let options = TcpOptionSet {
                        mss,
                        window_scale,
                        sack_permitted: n & 1 != 0,
                        timestamps: (n & 2 != 0).then_some(stamp),
                        ..TcpOptionSet::NONE
                    };
                    let ecn =
                        if n & 4 != 0 { TcpFlags::ECE | TcpFlags::CWR } else { TcpFlags::NONE };
                    let it = client(compared, family);
                    let syn = it.frame((it.isn, 0), TcpFlags::SYN | ecn, &options, &[]);
                    let wanted = bytes_of(&rig.frame(&syn));
                    assert_eq!(interface.answers(&syn), Some(wanted), "{options:?} {ecn:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 2 * 6 * 5 * 8);
}

/// The stack has not seen the SYN. Its gate is open once it was told that SYNs are answered.
#[test]
fn one_that_was_answered_at_the_interface_is_established_and_is_let_in() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let mut interface = Interface::new(&rig);
        for (n, it) in [client(1, family), client(2, family).timeless()].into_iter().enumerate() {
            let heard = interface.hears(&it);
            let ack = it.ack(&heard, HELLO);
            rig.stack.syns_are_answered(false);
            assert_eq!(rig.classify(std::slice::from_ref(&ack)), [Triage::Unknown]);
            assert_eq!(interface.judges(&ack), PROVEN);
            rig.stack.syns_are_answered(true);
            assert_eq!(rig.classify(std::slice::from_ref(&ack)), [Triage::Established]);
            let guess = Heard { seq: heard.seq ^ 0x100, ..heard.clone() };
            let guess = it.ack(&guess, HELLO);
            assert_eq!(
                (interface.judges(&guess), rig.classify(&[guess])[0]),
                (FORGED, Triage::Unknown)
            );
            rig.frame(&ack);
            let id = accept(&mut rig, listener).unwrap_or_else(|| panic!("{n}"));
            assert_eq!(read(&mut rig, id), HELLO);
        }
    }
}

/// A SYN that the cache noted while the interface slept, its ACK after it woke.
#[test]
fn waking_loses_no_handshake_of_the_cache() {
    for family in FAMILIES {
        let (mut rig, listener) = server(8);
        let mut interface = Interface::new(&rig);
        let it = client(1, family);
        let heard = answer(&it, &rig.frame(&it.syn()));
        rig.stack.syns_are_answered(true);
        let ack = it.ack(&heard, &[]);
        assert_eq!(interface.judges(&ack), PROVEN);
        rig.frame(&ack);
        assert!(accept(&mut rig, listener).is_some());
    }
}

/// A client with a SYN that comes twice meets both: whichever answer it acknowledges.
#[test]
fn answers_of_both_to_one_client_are_good() {
    for (family, from_interface) in FAMILIES.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let (mut rig, listener) = server(8);
        rig.stack.syns_are_answered(true);
        let mut interface = Interface::new(&rig);
        let it = client(1, family);
        let cached = answer(&it, &rig.frame(&it.syn()));
        rig.run_for(Duration::from_millis(1));
        let other = interface.hears(&TcpClient { clock: it.clock + 1000, ..it });
        let heard = if from_interface { other } else { cached };
        rig.frame(&it.ack(&heard, &[]));
        assert!(accept(&mut rig, listener).is_some(), "{family:?} {from_interface}");
    }
}

#[test]
fn keys_turn_for_both_at_once() {
    let (mut rig, listener) = server(8);
    rig.stack.syns_are_answered(true);
    let mut interface = Interface::new(&rig);
    for turn in 0..5 {
        let before = rig.stack.syn_offers_changed(rig.now);
        let it = client(turn, Family::V4);
        let heard = interface.hears(&it);
        rig.run_for(Duration::from_secs(15));
        assert_ne!(rig.stack.syn_offers_changed(rig.now), before, "to be told again");
        interface.tell(&rig);
        let ack = it.ack(&heard, &[]);
        assert_eq!(interface.judges(&ack), PROVEN);
        rig.frame(&ack);
        assert!(accept(&mut rig, listener).is_some(), "{turn}");
    }
}

#[test]
fn what_is_offered_follows_listeners_secrets_policies_and_access_lists() {
    let mut rig = rig();
    let changes = |rig: &mut Rig, act: &mut dyn FnMut(&mut Rig)| {
        let before = rig.stack.syn_offers_changed(rig.now);
        act(rig);
        assert_ne!(rig.stack.syn_offers_changed(rig.now), before, "nothing was told");
    };
    assert!(offers(&rig).listeners().is_empty());
    let mut listener = None;
    changes(&mut rig, &mut |rig| listener = Some(listen(rig, PORT, 8)));
    let listener = listener.unwrap();
    let all = offers(&rig);
    for family in FAMILIES {
        let of = all.listeners().iter().find(|offer| offer.addr == craft::addr(family, HOST));
        let mss = if family == Family::V4 { 1460 } else { 1440 };
        assert_eq!(of.map(|offer| (offer.port, offer.mss)), Some((PORT, mss)));
    }
    changes(&mut rig, &mut |rig| {
        rig.sockets(|s| s.tcp_set_cookies(listener, CookiePolicy::Never).unwrap());
    });
    assert!(offers(&rig).listeners().is_empty(), "it answers no SYN by cookie");
    rig.sockets(|s| s.tcp_set_cookies(listener, CookiePolicy::Always).unwrap());
    let keys = offers(&rig).keys;
    changes(&mut rig, &mut |rig| {
        let secret = Secret::from_bytes(b"thirty-two bytes or more of what was drawn").unwrap();
        rig.stack.set_cookie_secret(secret, rig.now);
    });
    assert_ne!(offers(&rig).keys, keys);
    rig.sockets(|s| s.tcp_unlisten(listener).unwrap());
    assert!(offers(&rig).listeners().is_empty());
    let plain = TcpSettings { window_scale: false, ..TcpSettings::default() };
    let any = format!("[::]:{PORT}").parse().unwrap();
    rig.sockets(|s| {
        let owner = s.tcp_owner().unwrap();
        s.tcp_listen(any, &plain, 8, owner).unwrap()
    });
    assert!(offers(&rig).listeners().is_empty(), "the program would agree to a scale");
    for (rule, goes) in [("deny from 192.0.2.0/24", true), ("deny tcp from 192.0.2.0/24", false)] {
        let rule: AccessRule = rule.parse().unwrap();
        let mut config = config();
        config.interfaces[0].access = vec![rule];
        let mut rig = Rig::with_neighbor(&config, PEER);
        listen(&mut rig, PORT, 8);
        assert_eq!(!offers(&rig).listeners().is_empty(), goes);
    }
}
