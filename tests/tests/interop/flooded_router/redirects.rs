//! Hosts that talk through our router over AF_XDP: their packets pass at the interface, and no
//! worker sees them, until something changes that decides their way.

use super::*;
use crate::instance::arrived;

/// Exchanges that are counted.
const EXCHANGES: u64 = 1000;
/// Packets that the worker may see meanwhile: a pair comes up now and then, and hosts ask for
/// link addresses.
const SEEN_MAX: u64 = EXCHANGES / 10;
/// How soon a question is answered where anything answers it.
const SOON: Duration = Duration::from_millis(100);

/// Lets an end of a cable be as an end of a real one: checksums are complete, and what a program
/// redirects to the other end arrives.
pub(super) fn as_a_card() -> bool {
    run("ethtool", &format!("-K {ETH} tx off gro on"), b"").is_some_and(|s| s.status.success())
}

impl Stand {
    fn ours(&self, words: &str) -> String {
        let (_, socket, _) = self.ours.as_ref().unwrap();
        let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
        let words = format!("{verb} --socket {socket} {rest}");
        let said = run(floodwall().unwrap().to_str().unwrap(), &words, b"").unwrap();
        assert!(said.status.success(), "{words}: {}", said.complaint);
        said.text
    }

    /// Packets that the interfaces redirected, and that the stack saw.
    fn passed(&self) -> (u64, u64) {
        let stat = self.look().unwrap();
        assert_conserved(&stat);
        let devices = stat["devices"].as_array().unwrap().iter();
        let redirected =
            devices.map(|device| device["stats"]["rx_redirected"].as_u64().unwrap_or(0));
        (redirected.sum(), arrived(&stat))
    }
}

/// Asks so many times, one question after another; how many were answered.
fn exchange(socket: &UdpSocket, times: u64) -> u64 {
    let mut answered = 0;
    for number in 0..times {
        if socket.send(&number.to_be_bytes()).is_err() {
            continue;
        }
        let mut room = [0; 16];
        while let Ok(len) = socket.recv(&mut room) {
            if room[..len] == number.to_be_bytes() {
                answered += 1;
                break;
            }
        }
    }
    answered
}

/// The hop limit of the next datagram of the service's that comes by the left host's interface.
fn hops_left(stand: &Stand, four: bool, socket: &UdpSocket) -> Option<u8> {
    stand.left.inside(|| {
        let mut device = AfPacket::open(ETH, &AfPacketConfig::default()).unwrap();
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let (kind, protocol, hops) = if four { ([8, 0], 23, 22) } else { ([0x86, 0xdd], 20, 21) };
        let mut found = None;
        until(PATIENCE, || {
            exchange(socket, 1);
            let mut burst = Burst::new();
            device.receive(&pool, &mut burst).unwrap();
            let frames = burst.iter().map(|packet| packet.first());
            let mut theirs =
                frames.filter(|f| f.len() > 60 - 18 && f[12..14] == kind && f[protocol] == 17);
            found = theirs.next().map(|frame| frame[hops]);
            found.is_some()
        });
        found
    })
}

#[test]
fn hosts_that_talk_pass_at_the_interface_until_their_way_changes() {
    inside_then_alone(
        || Stand::new(Router::Ours("xdp")),
        |stand| {
            if ![&stand.left, &stand.right].into_iter().all(|host| host.inside(as_a_card)) {
                return skip("no `ethtool`, or it may not");
            }
            for four in [true, false] {
                let [client, service] = ends(four);
                let socket = stand.left.inside(|| UdpSocket::bind((client, 0)).unwrap());
                socket.connect((service, FIRST_PORT)).unwrap();
                socket.set_read_timeout(Some(SOON)).unwrap();
                // Both directions: one exchange is two packets.
                let passes = || {
                    let (before, _) = stand.passed();
                    exchange(&socket, 20);
                    stand.passed().0 >= before + 38
                };
                assert!(
                    until(PATIENCE, passes),
                    "IPv4 {four}: {:#}",
                    stand.look().unwrap()["devices"]
                );
                let before = stand.passed();
                let answered = exchange(&socket, EXCHANGES);
                let after = stand.passed();
                let (redirected, seen) = (after.0 - before.0, after.1 - before.1);
                tell(&format!(
                    "IPv4 {four}: {answered} answered, {redirected} redirected, {seen} seen"
                ));
                assert!(answered >= EXCHANGES - EXCHANGES / 100, "IPv4 {four}: {answered}");
                assert!(redirected >= 2 * EXCHANGES - SEEN_MAX, "IPv4 {four}: {redirected}");
                assert!(seen <= SEEN_MAX, "IPv4 {four}: {seen} came up");
                assert_eq!(hops_left(&stand, four, &socket), Some(63), "IPv4 {four}");
                // A route of the operator's holds for the next packet.
                let route = format!("blackhole {service}/{}", if four { 32 } else { 128 });
                let before = stand.passed().0;
                stand.ours(&format!("route add {route}"));
                let at_once = stand.passed().0;
                assert_eq!(exchange(&socket, 10), 0, "IPv4 {four}: none passes {route}");
                assert_eq!(stand.passed().0, at_once, "IPv4 {four}: {before}");
                stand.ours(&format!("route del {route}"));
                assert!(until(PATIENCE, passes), "IPv4 {four}: it passes again");
            }
            denied_from_now_on(&stand);
            stand.end();
        },
    );
}

/// An access list that comes later is obeyed at once, and what it lets in passes by the worker,
/// which counts it.
fn denied_from_now_on(stand: &Stand) {
    let (_, _, folder) = stand.ours.as_ref().unwrap();
    let file = folder.file("router.toml");
    let rules = format!("access = [\"deny udp dport {FIRST_PORT}\"]\naddress = [\"10.77");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("address = [\"10.77", &rules)).unwrap();
    stand.ours("reload");
    for four in [true, false] {
        let [client, service] = ends(four);
        let at = |port: u16| {
            let socket = stand.left.inside(|| UdpSocket::bind((client, 0)).unwrap());
            socket.connect((service, port)).unwrap();
            socket.set_read_timeout(Some(SOON)).unwrap();
            socket
        };
        assert_eq!(exchange(&at(FIRST_PORT), 5), 0, "IPv4 {four}: it is denied");
        assert_eq!(exchange(&at(FIRST_PORT + 1), 5), 5, "IPv4 {four}: this one is not");
    }
}
