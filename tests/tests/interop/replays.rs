//! One real connection with old data that is sent again and again, as fast as a core sends: honest
//! clients of another network connect, and an established transfer of theirs goes on.
//!
//! The attacker is a stock client; its frame is taken from a capture of the running instance.
//! Claims: honest clients are answered, and the transfer keeps nine tenths of its pace. At an
//! interface with our program the flow is worth no more than its tokens (`rx_flow_full` counts the
//! rest); over a TAP the worker's own tokens decide: of the packets that triage looks at, replays
//! are most, and are not taken for packets of an established flow. The claims are about what
//! reaches us: where a ring in front of our stack was full, the replays come again, slower.

#![expect(clippy::disallowed_methods, reason = "clients run in real time")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floodwall_pktgen::{Content, Pace, Stream};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::command::{ip, run};
use crate::namespace::{inside_then_alone, is_deep, pause, tell};
use crate::syn_flood::callers::Calls;
use crate::syn_flood::{HALF_A_SECOND, Server, Stand, THREE_SECONDS, service};

/// The attacker's addresses, of networks of its own.
const ATTACKER: [&str; 2] = ["10.99.0.9", "fd99::9"];
/// What the transfer sends each so often, and how long a lead the replay has.
const PIECE: usize = 10_000;
const EVERY: Duration = Duration::from_millis(5);
const LEAD: Duration = Duration::from_millis(500);
/// How long what is under way at the end of a trial is waited for.
const LAST: Duration = Duration::from_secs(3);

/// Replays a second: as fast as a core sends, and slower where a ring before our stack is full.
const PACES: [u64; 5] = [10_000_000, 100_000, 25_000, 6_000, 1_500];

/// Of fewer packets the classes tell nothing.
const LOOKS_TOLD: u64 = 20_000;
/// So many packets of unverified flows may be refused: the replayed flow is none from the first
/// moment on, so that what newcomers share is theirs. Honest clients lose their packets in rings.
const UNVERIFIED_MAX: u64 = 500;

fn family(four: bool) -> AddressFamily {
    if four { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// A connection from one of the attacker's addresses.
fn attack_from(four: bool) -> TcpStream {
    let from: IpAddr = ATTACKER[usize::from(!four)].parse().unwrap();
    let socket = socket_with(family(four), SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddr::new(from, 0)).unwrap();
    connect(&socket, &service(four)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(THREE_SECONDS)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A transfer at a pace, which is echoed; counts the bytes that came back until it is over.
fn transfer(four: bool, is_over: &AtomicBool, (sent, came): (&AtomicUsize, &AtomicUsize)) {
    let mut stream = TcpStream::connect_timeout(&service(four), THREE_SECONDS).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_write_timeout(Some(THREE_SECONDS)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut back = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 65_536];
            let under_way = || came.load(Ordering::Relaxed) < sent.load(Ordering::Relaxed);
            let mut over_since = None;
            while over_since.is_none_or(|since: Instant| under_way() && since.elapsed() < LAST) {
                came.fetch_add(back.read(&mut room).unwrap_or(0), Ordering::Relaxed);
                if over_since.is_none() && is_over.load(Ordering::Relaxed) {
                    over_since = Some(Instant::now());
                }
            }
        });
        let (begun, mut pieces) = (Instant::now(), 0);
        while !is_over.load(Ordering::Relaxed) {
            pieces += 1;
            pause((EVERY * pieces).saturating_sub(begun.elapsed()));
            if stream.write_all(&[b'b'; PIECE]).is_ok() {
                sent.fetch_add(PIECE, Ordering::Relaxed);
            }
        }
    });
}

/// A frame with data that the connection has sent, taken from what arrives.
fn old_frame(stand: &Stand, stream: &mut TcpStream) -> Vec<u8> {
    let port = stream.local_addr().unwrap().port();
    let filter = format!("tcp src port {port}");
    let mut say = || {
        stream.write_all(&[b'a'; 100]).unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        pause(Duration::from_millis(5));
    };
    stand.ours.as_ref().unwrap().capture_one(&filter, &mut say)
}

fn counted(stand: &Stand, name: &str) -> u64 {
    let stat = stand.ours.as_ref().unwrap().stat();
    stat["devices"][0]["stats"][name].as_u64().unwrap_or_else(|| panic!("{name}"))
}

/// What the program at the interface has refused of unverified traffic, which newcomers share.
fn unverified_refused(stand: &Stand) -> u64 {
    let names = ["rx_unverified", "rx_segments", "rx_service_full", "rx_prefix_full"];
    names.into_iter().map(|name| counted(stand, name)).sum()
}

/// What triage has looked at, and what of it had its flow's token.
fn looked_at(stand: &Stand) -> [u64; 2] {
    let stat = stand.ours.as_ref().unwrap().stat();
    ["triage_looks", "triage_established"].map(|name| {
        let of = |worker: &serde_json::Value| worker["facts"][name].as_u64().unwrap();
        stat["workers"].as_array().unwrap().iter().map(of).sum()
    })
}

/// One connection's segment is replayed beside others; what was not as it must be, and whether
/// rings in front of our stack were full.
fn replayed(stand: &Stand, server: Server, four: bool, pace: u64) -> (Vec<String>, bool) {
    let count = if is_deep() { 4000 } else { 300 };
    let mut stream = stand.clients.inside(|| attack_from(four));
    let frame = stand.clients.inside(|| old_frame(stand, &mut stream));
    let replay = Stream::new(
        Content::Replay { frames: vec![frame], mutate: false },
        service(four).ip().into(),
        service(four).ip().into(),
        Pace::per_second(pace),
    );
    let full = || match server {
        Server::Tap => [0; 2],
        _ => [counted(stand, "rx_flow_full"), unverified_refused(stand)],
    };
    let (before, looked_before) = (full(), looked_at(stand));
    let (is_over, sent, came) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let trial = thread::scope(|scope| {
        scope.spawn(|| stand.clients.inside(|| transfer(four, &is_over, (&sent, &came))));
        let calls = Calls { count, rate: 300, to: Some(service(four)) };
        let trial = stand.trial(vec![replay], || pause(LEAD), &[calls]);
        is_over.store(true, Ordering::Relaxed);
        trial
    });
    let [refused, unverified] = full();
    let (refused, unverified) = (refused - before[0], unverified - before[1]);
    let [looks, established] = looked_at(stand);
    let (looks, established) = (looks - looked_before[0], established - looked_before[1]);
    let (sent, came) = (sent.into_inner(), came.into_inner());
    tell(&format!(
        "{server:?} IPv4 {four}: {}; {refused} refused, {unverified} of unverified flows, \
         {came} of {sent} bytes echoed, {established} of {looks} looked at had a token",
        trial.row(),
    ));
    let has_tokens = server != Server::Xdp || refused > 0;
    // Elsewhere most end before triage: over a packet socket once the program has come. A machine
    // that takes all of them in time has no need to look at them.
    let ends_before = match server {
        Server::Packet => refused > LOOKS_TOLD,
        _ => server != Server::Tap,
    };
    let is_told = ends_before || looks < LOOKS_TOLD || established * 2 < looks;
    let (limit, least) = if is_deep() { (HALF_A_SECOND, 0.98) } else { (THREE_SECONDS, 0.95) };
    let wrong = [
        (has_tokens, "the flow has its tokens, and no more".to_owned()),
        (is_told, format!("{established} of {looks} packets had a token: replays are most")),
        (unverified <= UNVERIFIED_MAX, format!("{unverified} refused of what newcomers share")),
        (came * 10 >= sent * 9, format!("{came} of {sent} bytes came back")),
        (trial.within(limit) >= least, trial.row()),
    ];
    let wrong = wrong.into_iter().filter_map(|(holds, what)| (!holds).then_some(what)).collect();
    (wrong, trial.lost_before())
}

fn replayed_over(server: Server, flags: &'static str) {
    inside_then_alone(
        move || Stand::new(server, flags),
        move |stand| {
            stand.clients.inside(|| {
                let name = server.near();
                assert!(ip(&format!("addr add {}/24 dev {name}", ATTACKER[0])));
                assert!(ip(&format!("addr add {}/64 dev {name} nodad", ATTACKER[1])));
                // Else checksums are left to a card, and a replay has none.
                let _ = run("ethtool", &format!("-K {name} tx off"), b"");
            });
            for four in [true, false] {
                // At the slowest pace nothing is an excuse.
                let told = PACES.into_iter().find_map(|pace| {
                    let (faults, lost_before) = replayed(&stand, server, four, pace);
                    let is_told = faults.is_empty() || !lost_before || PACES.ends_with(&[pace]);
                    is_told.then_some((pace, faults))
                });
                let (pace, faults) = told.unwrap();
                assert!(faults.is_empty(), "{server:?} IPv4 {four}, {pace}/s: {faults:?}");
            }
            let _ = stand.end();
        },
    );
}

#[test]
fn replays_of_one_connection_leave_others_their_places_over_xdp() {
    replayed_over(Server::Xdp, "");
}

#[test]
fn replays_of_one_connection_leave_others_their_places_over_packet_sockets() {
    match is_deep() {
        true => replayed_over(Server::Packet, ""),
        false => tell("skipped: FLOODWALL_DEEP=1 runs it"),
    }
}

#[test]
fn replays_of_one_connection_leave_others_their_places_over_a_tap() {
    replayed_over(Server::Tap, "");
}
