//! The programs in the kernel, by `BPF_PROG_TEST_RUN`, beside the stack's SYN cache.

use core::net::IpAddr;

use floodwall_base::{
    Endpoint, FlowKey, IfIndex, Instant, MacAddr, PortSet, Randomness, SecretRandom, Seq,
};
use floodwall_packet::{CookieKeys, RxFilter, SynOffer, SynOffers};
use floodwall_syncache::{
    AckOutcome, CacheSettings, CookieEpoch, CookieMoment, HalfOpen, HandshakeAck, ListenSettings,
    ListenerId, Proven, Secret, SynCache,
};

use floodwall_bpf::{AccessSize, Assembler, JumpCondition, Register};

use crate::DeviceError;
use crate::af_xdp::bpf::{BpfProgram, Map, MapKind};
use crate::af_xdp::first_line::{FirstLine, FirstLineState};
use crate::af_xdp::xdp_abi::Deliver;

const STATION: MacAddr = MacAddr([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
const PORT: u16 = 80;
const V4: &str = "10.0.0.99";
const V6: &str = "fd00::99";
const SEGMENT: FirstLineState = FirstLineState::Refused("rx_segments");

/// The clock of the programs.
fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

struct Rig {
    line: FirstLine,
    cache: SynCache,
    listener: ListenerId,
    random: SecretRandom,
}

impl Rig {
    fn new() -> Option<Self> {
        let line = match FirstLine::load_answering(STATION) {
            Ok(line) => line,
            Err(error @ DeviceError::NoPrivilege { .. }) => {
                eprintln!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let mut random = Randomness::from_number(5).secret;
        let secret = Secret::from_bytes(&[b"one word more".as_slice(); 3].concat()).unwrap();
        let at = CookieMoment::simulated(now());
        let mut cache = SynCache::new(CacheSettings::default(), secret, &mut random, at);
        cache.set_shared(true);
        let listener = cache.listen(ListenSettings::new(100)).unwrap();
        let mut rig = Self { line, cache, listener, random };
        rig.want();
        rig.offer(now());
        Some(rig)
    }

    fn want(&mut self) {
        let mut wanted = RxFilter::default();
        wanted.nothing();
        wanted.add_v4(V4.parse().unwrap(), true);
        wanted.add_v6(V6.parse().unwrap(), true);
        let mut ports = PortSet::default();
        ports.set(PORT, true);
        wanted.tcp.add(&ports);
        self.line.want(&wanted);
    }

    fn offer(&mut self, now: Instant) {
        let at = CookieMoment::simulated(now);
        let CookieEpoch(epoch) = at.epoch;
        let until = Instant::from_nanos((epoch + 1) * super::EPOCH_NANOS);
        let keys = self.cache.interface_keys(at, until);
        let keys = CookieKeys { epoch, until, keys: keys.keys, clock: keys.clock };
        let mut offers = SynOffers::default();
        offers.keys = Some(keys);
        for (addr, mss) in [(V4, 1460), (V6, 1440)] {
            let settings = ListenSettings::new(100);
            assert!(offers.add(SynOffer {
                addr: addr.parse().unwrap(),
                port: PORT,
                window: settings.window,
                mss,
                window_scale: settings.window_scale,
                sack: settings.sack,
                timestamps: settings.timestamps,
                ecn: settings.ecn,
                hop_limit: 64,
                traffic_class: 0,
            }));
        }
        self.line.answer_syns(&offers).unwrap();
    }

    /// Pressure, with credit for so many.
    fn press(&mut self, credit: Option<usize>) {
        self.line.admit(Instant::ORIGIN, credit);
    }

    /// A random SYN, its options and what they say.
    fn syn(&mut self, port: u16) -> (Sent, FirstLineState, Vec<u8>) {
        let bits = self.random.next_u64();
        let mut options = Vec::new();
        if bits & 1 != 0 {
            options.extend([2, 4]);
            options.extend((88 + (bits >> 32) as u16 % 9000).to_be_bytes());
        }
        match bits & 6 {
            2 => options.extend([1, 1, 4, 2]),
            4 => options.extend([1, 1, 8, 10, 9, 8, 7, 6, 0, 0, 0, 0]),
            6 => options.extend([4, 2, 8, 10, 9, 8, 7, 6, 0, 0, 0, 0]),
            _ => {}
        }
        if bits & 8 != 0 {
            options.extend([1, 3, 3, (bits >> 48) as u8 % 16]);
        }
        let flags = if bits & 16 != 0 { 0xc2 } else { 2 };
        let seq = (bits >> 16) as u32;
        let sent = Sent {
            v6: bits & 32 != 0,
            host: (bits >> 40) as u8,
            port,
            seq,
            ack: 0,
            flags,
            options,
        };
        let mut frame = sent.frame();
        let (said, _) = self.line.run(&mut frame, 1).unwrap();
        (sent, said, frame)
    }

    fn opens(&mut self, sent: &Sent, answer: &[u8]) -> (Sent, Option<Proven>) {
        let ack = sent.ack_of(answer);
        let echo = ack.options.get(8..12).map(|bytes| long(bytes, 0));
        let listener = self.listener;
        let ack_value = HandshakeAck {
            flow: sent.flow(),
            seq: Seq(ack.seq),
            ack: Seq(ack.ack),
            timestamp: echo.map(|echo| (0x0908_0707, echo)),
        };
        let AckOutcome::Proven(proven) =
            self.cache.ack(listener, &ack_value, CookieMoment::simulated(now()))
        else {
            return (ack, None);
        };
        self.cache.accepted(proven.slot());
        (ack, Some(proven))
    }
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
}

#[derive(Clone, Debug)]
struct Sent {
    v6: bool,
    host: u8,
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    options: Vec<u8>,
}

impl Sent {
    fn ends(&self) -> (IpAddr, IpAddr) {
        match self.v6 {
            false => ([10, 9, 1, self.host].into(), V4.parse().unwrap()),
            true => (format!("fd01::{:x}", self.host).parse().unwrap(), V6.parse().unwrap()),
        }
    }

    fn flow(&self) -> FlowKey {
        let (from, to) = self.ends();
        let end = |addr, port| Endpoint::new(addr, port);
        FlowKey {
            local: end(to, PORT),
            remote: end(from, self.port),
            zone: IfIndex(0),
            protocol: 6,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let (from, to) = self.ends();
        let mut tcp = self.port.to_be_bytes().to_vec();
        tcp.extend(PORT.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([(5 + self.options.len() as u8 / 4) << 4, self.flags, 4, 0, 0, 0, 0, 0]);
        tcp.extend(&self.options);
        let mut frame = STATION.0.to_vec();
        frame.extend([2, 0, 0, 0, 0, 9]);
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = vec![0x45, 0, 0, 20 + tcp.len() as u8, 0, 0, 0, 0, 64, 6, 0, 0];
                ip.extend(from.octets().into_iter().chain(to.octets()));
                let sum = sum_of(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend([8, 0]);
                frame.extend(ip);
            }
            (from, to) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, tcp.len() as u8, 6, 64]);
                for addr in [from, to] {
                    let IpAddr::V6(addr) = addr else { unreachable!() };
                    frame.extend(addr.octets());
                }
            }
        }
        frame.extend(tcp);
        frame
    }

    /// What the client sends to that SYN-ACK.
    fn ack_of(&self, answer: &[u8]) -> Self {
        let l4 = if self.v6 { 54 } else { 34 };
        let options = &answer[l4 + 20..];
        let at = options.windows(2).position(|pair| pair == [8, 10]);
        let options = at.map_or_else(Vec::new, |at| {
            let value = long(options, at + 2).to_be_bytes();
            [vec![1, 1, 8, 10, 9, 8, 7, 7], value.to_vec()].concat()
        });
        let (seq, ack) = (long(answer, l4 + 8), long(answer, l4 + 4).wrapping_add(1));
        Self { seq, ack, flags: 0x10, options, ..self.clone() }
    }
}

fn sum_of(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn syns_answered_in_the_kernel_are_opened_by_the_cache_and_in_the_kernel() {
    let Some(mut rig) = Rig::new() else { return };
    rig.press(Some(1000));
    for n in 0..400_u16 {
        rig.offer(now());
        let (sent, said, answer) = rig.syn(1024 + n);
        assert_eq!(said, FirstLineState::Answered, "{n}: {sent:?}");
        let (ack, proven) = rig.opens(&sent, &answer);
        let proven = proven.unwrap_or_else(|| panic!("{n}: {sent:?}: {answer:02x?}"));
        assert_eq!(proven.irs(), Seq(sent.seq));
        // Behind the segment size; its value may look like anything.
        let rest =
            if sent.options.first() == Some(&2) { &sent.options[4..] } else { &sent.options };
        let has = |kind: u8, len: u8| rest.windows(2).any(|pair| pair == [kind, len]);
        assert_eq!(proven.window_scale().is_some(), has(3, 3), "{sent:?}");
        assert_eq!(proven.sack(), has(4, 2), "{sent:?}");
        assert_eq!(proven.timestamps().is_some(), has(8, 10), "{sent:?}");
        // A look at the ticks of our own clock: the cache's is the same.
        let is_young = proven.round_trip().is_none_or(|time| time.as_millis() < 5_000);
        assert_eq!((proven.round_trip().is_some(), is_young), (has(8, 10), true));
        assert_eq!(rig.line.say(&ack.frame()).unwrap(), FirstLineState::Taken);
    }
    let stats = rig.line.stats();
    assert_eq!((stats.rx_syns_answered, stats.rx_cookies_forged), (400, 0));
}

#[test]
fn forged_acks_and_strays_have_a_small_credit_and_proven_flows_need_none() {
    let Some(mut rig) = Rig::new() else { return };
    rig.press(Some(0));
    for v6 in [false, true] {
        let sent = Sent { v6, host: 7, port: 4711, seq: 5, ack: 0, flags: 2, options: vec![] };
        let mut answer = sent.frame();
        assert_eq!(rig.line.run(&mut answer, 1).unwrap().0, FirstLineState::Answered);
        let good = sent.ack_of(&answer);
        let forged = Sent { ack: good.ack ^ 0x100, ..good.clone() };
        rig.press(Some(0));
        for (n, flags) in [0x10, 0x14, 0x12, 0x04, 0x01, 0x00].into_iter().enumerate() {
            let stray = Sent { flags, ..forged.clone() };
            let wanted = if n < 4 { FirstLineState::Taken } else { SEGMENT };
            assert_eq!(rig.line.say(&stray.frame()).unwrap(), wanted, "{flags:#x}");
        }
        assert_eq!(rig.line.say(&forged.frame()).unwrap(), SEGMENT, "v6: {v6}");
        assert_eq!(rig.line.say(&good.frame()).unwrap(), FirstLineState::Taken);
        // From now on the flow is known for all that it sends.
        let data = Sent { seq: good.seq + 1448, flags: 0x18, ..good.clone() };
        assert_eq!(rig.line.say(&data.frame()).unwrap(), FirstLineState::Taken);
    }
}

/// Old data of an established flow that comes again and again takes nothing of what others need:
/// newcomers, by their cookies, and flows that the interface has forgotten, by the credit of such
/// segments.
#[test]
fn replays_of_an_established_flow_take_nothing_of_newcomers_and_of_flows_that_were_forgotten() {
    const TURNS: u16 = 100;
    const REPLAYS: u32 = 500;
    let Some(mut rig) = Rig::new() else { return };
    for v6 in [false, true] {
        let client = |host, port| Sent {
            v6,
            host,
            port,
            seq: 5,
            ack: 0,
            flags: 2,
            options: vec![2, 4, 5, 180],
        };
        let old = Sent { flags: 0x18, ack: 77, options: vec![], ..client(9, 999) };
        rig.press(Some(32));
        rig.line.mark_established(Instant::ORIGIN, &old.frame());
        for turn in 0..TURNS {
            rig.press(Some(32));
            rig.line.run(&mut old.frame(), REPLAYS).unwrap();
            let syn = client(7, 2000 + turn);
            let mut answer = syn.frame();
            assert_eq!(rig.line.run(&mut answer, 1).unwrap().0, FirstLineState::Answered);
            let ack = syn.ack_of(&answer);
            let line = Sent { flags: 0x18, ..ack.clone() };
            let forgotten = Sent { port: 6000 + turn, ..old.clone() };
            for honest in [&ack, &line, &forgotten] {
                let said = rig.line.say(&honest.frame()).unwrap();
                assert_eq!(said, FirstLineState::Taken, "v6 {v6}, turn {turn}: {honest:?}");
            }
        }
    }
    let stats = rig.line.stats();
    let all = 2 * u64::from(TURNS) * u64::from(REPLAYS);
    // A flow's tokens at first. Each turn sweeps one set of the table: by the random hash a flow's
    // own set is among them once or never, and gives it those of a rest.
    let passed = all - stats.rx_flow_full;
    assert!([0, 16, 32].map(|rest| 2 * 64 + rest).contains(&passed), "{passed} of {all} replays");
    let newcomers =
        [stats.rx_unverified, stats.rx_segments, stats.rx_service_full, stats.rx_prefix_full];
    assert_eq!(newcomers, [0; 4]);
}

/// Prints what each verdict costs; `cargo test --release -p floodwall-device -- --ignored
/// --nocapture what_verdicts_cost`.
#[test]
#[ignore = "prints times"]
fn what_verdicts_cost() {
    const TIMES: u32 = 300_000;
    let Some(mut rig) = Rig::new() else { return };
    let linux = vec![2, 4, 5, 180, 4, 2, 8, 10, 9, 8, 7, 6, 0, 0, 0, 0, 1, 3, 3, 7];
    for v6 in [false, true] {
        let sent =
            Sent { v6, host: 9, port: 4711, seq: 5, ack: 0, flags: 2, options: linux.clone() };
        rig.press(Some(usize::MAX));
        let mut answer = sent.frame();
        rig.line.run(&mut answer, 1).unwrap();
        let good = sent.ack_of(&answer);
        let forged = Sent { ack: good.ack ^ 0x100, port: 4712, ..good.clone() };
        let reset = Sent { flags: 4, ..forged.clone() };
        rig.press(Some(0));
        let of = |what: &str, frame: Vec<u8>| {
            let best = (0..5).map(|_| rig.line.run(&mut frame.clone(), TIMES).unwrap().1).min();
            println!("{what} v6={v6}: {} ns", best.unwrap());
        };
        let mut arp = sent.frame();
        arp[12..14].copy_from_slice(&[8, 6]);
        of("ARP", arp);
        let mut foreign = sent.frame();
        foreign[0] ^= 4;
        of("for another station", foreign);
        of("forged ACK", forged.frame());
        of("RST of no connection", reset.frame());
        of("known flow (from its ACK on)", good.frame());
        rig.line.run(&mut good.frame(), 1).unwrap();
    }
    rig.press(None);
    for v6 in [false, true] {
        let sent =
            Sent { v6, host: 9, port: 4713, seq: 5, ack: 0, flags: 16, options: linux.clone() };
        let best = (0..5).map(|_| rig.line.run(&mut sent.frame(), TIMES).unwrap().1).min();
        println!("no pressure, segment v6={v6}: {} ns", best.unwrap());
    }
    rig.press(Some(0));
    for v6 in [false, true] {
        for (what, options) in
            [("Linux' options", linux.clone()), ("segment size", vec![2, 4, 5, 180])]
        {
            let sent = Sent { v6, host: 9, port: 4714, seq: 5, ack: 0, flags: 2, options };
            rig.offer(now());
            let cost = |goes_on| renewing(&rig.line, &sent.frame(), goes_on, TIMES);
            println!("SYN with {what} v6={v6}: {} ns", cost(true) - cost(false));
        }
    }
}

/// What a run costs in front of which the frame is written anew; with `goes_on` the program of the
/// interface is behind it.
fn renewing(line: &FirstLine, frame: &[u8], goes_on: bool, times: u32) -> u32 {
    let programs = Map::create(MapKind::Programs, 4, 1).unwrap();
    if goes_on {
        programs.set(0, line.program().cast_unsigned()).unwrap();
    }
    let mut a = Assembler::new();
    let short = a.label();
    a.copy(Register::R6, Register::R1)
        .load(AccessSize::Word, Register::R7, Register::R6, 0)
        .load(AccessSize::Word, Register::R8, Register::R6, 4)
        .copy(Register::R1, Register::R7)
        .add(Register::R1, frame.len() as i32)
        .jump_if_reg(Register::R1, JumpCondition::Above, Register::R8, short);
    for (half, at) in frame.chunks_exact(2).zip((0..).step_by(2)) {
        let half = i32::from(u16::from_ne_bytes([half[0], half[1]]));
        a.store_value(AccessSize::Half, Register::R7, at, half);
    }
    a.tail_call(Register::R6, programs.fd(), 0);
    a.place(short);
    a.set(Register::R0, 1).exit();
    let program = BpfProgram::load(&a.finish().unwrap(), Deliver::ToSockets).unwrap();
    let mut best = u32::MAX;
    for _ in 0..5 {
        let (verdict, nanos) = program.run(&mut frame.to_vec(), times).unwrap();
        assert_eq!(verdict, if goes_on { 3 } else { 1 });
        best = best.min(nanos);
    }
    best
}

/// A program at the system's ingress is attached to an interface, so this test runs in a network
/// namespace of its thread.
#[test]
#[expect(clippy::disallowed_methods, reason = "a namespace is left with its thread")]
fn answers_can_pass_by_the_system() {
    use crate::af_xdp::cookies::{Back, CookieProgramPlan};
    use crate::af_xdp::link_station::LinkStation;
    use crate::af_xdp::steering::QueueSteering;
    const LOOPBACK: u32 = 1;
    let inside = std::thread::spawn(|| {
        // SAFETY: the new thread alone enters another network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return eprintln!("SKIPPED: no network namespace: {}", std::io::Error::last_os_error());
        }
        for deliver in [Deliver::ToSockets, Deliver::Onward] {
            let plan = CookieProgramPlan {
                answers: Some(Back::Redirected(LOOPBACK)),
                veth: Some(LOOPBACK),
                deliver,
                ..CookieProgramPlan::default()
            };
            let station = LinkStation { mac: MacAddr([2, 0, 0, 0, 0, 1]), is_shared: false };
            let mut notes = Vec::new();
            let mut steering = QueueSteering::load(station, 1, &plan, &mut notes).unwrap();
            steering.reach_peer(&plan, false, &mut notes);
            // The loopback interface takes no frames from a program; answers go up, marked.
            assert!(notes.len() == 1 && notes[0].contains("pass by the system"), "{notes:?}");
        }
    });
    inside.join().unwrap();
}
