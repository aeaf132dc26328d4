//! Honest clients during a flood: every kind of flood, both families, server or client sending
//! first.

use std::time::Duration;

use floodwall_base::Family;
use floodwall_stack::tcp_set::ListenerId;
use floodwall_tests::Rig;
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp::{SYN_ACK, TcpClient};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::{First, PORT, accept, answer, client, converses, half_open, server};

/// Frames that arrive together.
pub(crate) const BURST: u32 = 64;
/// How long 64 packets take at 200,000 a second.
const BURST_TIME: Duration = Duration::from_micros(320);

/// What attackers send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flood {
    /// SYNs of random sources.
    Syn,
    /// The same with a request in each.
    SynWithData,
    /// SYNs with the same exclusive or of all address and port words: they meet in one row wherever
    /// the key is added that way (the source's cache of 2001).
    OneBucket,
    /// SYNs and ACKs of the same flows, with guessed numbers.
    SynAndAck,
    /// SYNs and resets of the same flows.
    SynAndReset,
}

const FLOODS: [Flood; 5] =
    [Flood::Syn, Flood::SynWithData, Flood::OneBucket, Flood::SynAndAck, Flood::SynAndReset];

/// The `n`th attacker: none of them is an honest client.
fn attacker(n: u32, flood: Flood) -> TcpClient {
    let family = FAMILIES[n as usize % 2];
    let mut it = TcpClient::nth(n.wrapping_mul(2_654_435_769) >> 8 | 1 << 23, family, PORT);
    if flood == Flood::OneBucket {
        // Both halves of the varying part cancel each other out.
        let word = (n >> 1) as u16;
        it = TcpClient::nth(1 << 23, family, PORT);
        let ip = match it.from.ip() {
            std::net::IpAddr::V4(_) => {
                std::net::Ipv4Addr::from(0x0d00_0000 | u32::from(word)).into()
            }
            std::net::IpAddr::V6(ip) => {
                std::net::Ipv6Addr::from(ip.to_bits() & !0xffff | u128::from(word)).into()
            }
        };
        it.from = std::net::SocketAddr::new(ip, 0x4000 ^ word);
    }
    it
}

impl Flood {
    fn frame(self, n: u32) -> Vec<u8> {
        let it = attacker(
            if matches!(self, Self::SynAndAck | Self::SynAndReset) { n / 2 } else { n },
            self,
        );
        let seqs = (it.isn.wrapping_add(1), n.wrapping_mul(0x85eb_ca6b));
        match self {
            Self::Syn | Self::OneBucket => it.syn(),
            Self::SynWithData => {
                it.frame((it.isn, 0), TcpFlags::SYN, &it.options, b"GET / HTTP/1.0\r\n\r\n")
            }
            Self::SynAndAck if n % 2 == 1 => {
                it.frame(seqs, TcpFlags::ACK, &TcpOptionSet::NONE, &[])
            }
            Self::SynAndReset if n % 2 == 1 => {
                it.frame((seqs.1, 0), TcpFlags::RST, &TcpOptionSet::NONE, &[])
            }
            Self::SynAndAck | Self::SynAndReset => it.syn(),
        }
    }
}

/// One burst of a flood; answers to it that are SYN-ACKs.
pub(crate) fn burst(rig: &mut Rig, flood: Flood, from: u32) -> usize {
    rig.now += BURST_TIME;
    let frames: Vec<_> = (from..from + BURST)
        .map(|n| rig.pool.packet_from(&flood.frame(n)).expect("room in the pool"))
        .collect();
    let departed = rig.arrive(frames);
    let answers = departed.iter().filter_map(floodwall_tests::tcp::heard);
    let answers = answers.filter(|heard| heard.flags == SYN_ACK || heard.flags.0 == 0x52).count();
    drop(departed);
    rig.run_until(rig.now);
    answers
}

/// How many of `clients` honest ones converse at once while the flood goes on, one after each
/// burst.
fn conversing(rig: &mut Rig, listener: ListenerId, flood: Flood, clients: u32) -> u32 {
    let mut came_off = 0;
    for n in 0..clients {
        burst(rig, flood, n * BURST);
        let first = if n % 4 < 2 { First::Client } else { First::Server };
        let honest = client(n, FAMILIES[n as usize % 2]);
        let honest = if n % 3 == 0 { honest.timeless() } else { honest };
        came_off += u32::from(converses(rig, listener, &honest, first));
    }
    came_off
}

/// Row 1 (CVE-1999-0116, and the source's backlogs).
#[test]
fn every_honest_client_converses_at_once_through_every_flood_at_every_backlog() {
    for backlog in [128, 1024] {
        for flood in FLOODS {
            let (mut rig, listener) = server(backlog);
            let free = rig.pool.available();
            let came_off = conversing(&mut rig, listener, flood, 60);
            assert_eq!(came_off, 60, "{flood:?} at {backlog}");
            assert!(half_open(&rig) <= 15_359);
            assert_eq!(rig.pool.available(), free, "{flood:?}: packets are left behind");
            assert!(rig.conservation().holds());
        }
    }
}

/// A client that answers its SYN-ACK a second and more later connects, though no entry lives that
/// long under the flood.
#[test]
fn a_far_client_with_a_displaced_entry_is_let_in_by_its_cookie() {
    let (mut rig, listener) = server(64);
    // The gate that keys have opened is shut again: what opens it now is the displacement.
    rig.now += Duration::from_secs(40);
    let far: Vec<_> = (0..20).map(|n| client(1000 + n, FAMILIES[n as usize % 2])).collect();
    let answers: Vec<_> = far.iter().map(|far| answer(far, &rig.frame(&far.syn()))).collect();
    for n in 0..400 {
        burst(&mut rig, Flood::Syn, n * BURST);
    }
    rig.now += Duration::from_millis(1100);
    for (far, answer) in far.iter().zip(&answers) {
        rig.frame(&far.ack(answer, b"late"));
        let id = accept(&mut rig, listener).expect("let in");
        let said = rig.sockets(|s| s.tcp_syn_said(id).unwrap()).0.expect("it had a SYN");
        assert_eq!((said.window_scale, said.sack, said.timestamps), (Some(9), true, true));
        assert_eq!(crate::read(&mut rig, id), b"late");
    }
    let stats = rig.stack.half_open_stats().unwrap();
    assert!(stats.cookies_received > 0 && stats.row_overflow + stats.cache_overflow > 0);
}

/// Row 6 (CVE-2017-5972): one listener's flood is not its neighbour's.
#[test]
fn clients_of_another_port_are_cached_as_ever() {
    let (mut rig, listener) = server(64);
    let other = crate::listen(&mut rig, crate::OTHER_PORT, 64);
    for n in 0..400 {
        burst(&mut rig, Flood::Syn, n * BURST);
        if n % 10 == 0 {
            let honest = TcpClient::nth(n, FAMILIES[n as usize / 10 % 2], crate::OTHER_PORT);
            assert!(converses(&mut rig, other, &honest, First::Server), "{n}");
        }
    }
    let counts = |port: u16| {
        rig.stack.tcp_listeners().find(|it| it.local.port() == port).expect("it listens").counts
    };
    let (flooded, quiet) = (counts(PORT), counts(crate::OTHER_PORT));
    assert_eq!((quiet.hits, quiet.cookies_sent, quiet.cookie_only), (40, 0, 0));
    assert!(flooded.half_open > 5000 && flooded.cookie_only > 0, "its own pause: {flooded:?}");
    let _ = listener;
}

/// Row 10: bytes out for bytes in, each frame at least the smallest of Ethernet.
#[test]
fn a_silent_source_gets_no_more_bytes_than_it_sent_from_cookies_and_six_times_from_the_cache() {
    use floodwall_stack::tcp_set::CookiePolicy;
    let on_wire = |len: usize| len.max(46) + 14;
    for family in FAMILIES {
        for policy in [CookiePolicy::Always, CookiePolicy::Overflow] {
            for offered in 0..16_u32 {
                let (mut rig, listener) = server(64);
                rig.sockets(|s| s.tcp_set_cookies(listener, policy).unwrap());
                let mut silent = client(offered, family);
                let all = silent.options;
                silent.options = TcpOptionSet {
                    mss: all.mss.filter(|_| offered & 1 != 0),
                    window_scale: all.window_scale.filter(|_| offered & 2 != 0),
                    sack_permitted: offered & 4 != 0,
                    timestamps: all.timestamps.filter(|_| offered & 8 != 0),
                    ..TcpOptionSet::NONE
                };
                let syn = silent.syn();
                let mut departed = rig.frame(&syn);
                for _ in 0..70 {
                    departed.extend(rig.run_for(Duration::from_secs(1)));
                }
                let answers = silent.hears(&departed);
                let out: usize = answers.iter().map(|heard| on_wire(heard.len)).sum();
                let cookies = policy == CookiePolicy::Always;
                assert_eq!(answers.len(), if cookies { 1 } else { 6 }, "{family:?} {offered}");
                // The cache's answers have our segment size in any case.
                let most = if cookies { 1 } else { 6 } * on_wire(syn.len() - 14);
                let sizes = if cookies || offered & 1 != 0 { 0 } else { 6 * 4 };
                let most = most + sizes;
                assert!(out <= most, "{family:?} {policy:?} {offered:#b}: {out} of {most}");
            }
        }
    }
}

/// Under flood each SYN has one answer at most, and none is sent again.
#[test]
fn a_flood_is_answered_once_each_at_most() {
    let (mut rig, _) = server(64);
    let answers: usize = (0..300).map(|n| burst(&mut rig, Flood::Syn, n * BURST)).sum();
    assert_eq!(answers, 300 * BURST as usize);
    let stats = rig.stack.half_open_stats().unwrap();
    assert_eq!(stats.syns(), 300 * u64::from(BURST));
    let again = rig.run_for(Duration::from_secs(65));
    assert!(again.len() < 2000, "{} sent again", again.len());
    assert_eq!(half_open(&rig), 0, "and nothing is left");
    let _ = Family::V4;
}
