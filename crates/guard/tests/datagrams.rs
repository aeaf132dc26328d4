//! An unchanged DNS server and a game server's queries behind challenges, beside forged questions.
//!
//! Needs root, `dnsmasq` and `dig` for DNS. The flood comes in bursts between honest questions, so
//! that nothing here depends on the machine's pace. `FLOODWALL_DEEP=1` floods at
//! multiples of what the server answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{self, Flood, Rig, SERVER, config, counted, server, skip, start};
use floodwall_device::host_bpf::interface;
use floodwall_guard::{DatagramProtocol, Guard, GuardConfig, UdpPort, Watch};

const DNS: u16 = 53;
const GAME: u16 = 27015;
/// A question for `honest.example.`, type A.
const QUESTION: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x06honest\x07example\0\0\x01\0\x01";
/// The link address that frames of the flood are for.
const MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
const QUERY: &[u8] = b"\xff\xff\xff\xffTSource Engine Query\0";

/// A server process of this namespace, ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An unchanged dnsmasq which answers for `example.`; `None`, with the reason printed, without.
fn dnsmasq() -> Option<Server> {
    let words = "--keep-in-foreground --conf-file=/dev/null --pid-file --user=root --no-resolv \
                 --no-hosts --bind-interfaces --address=/example/192.0.2.77";
    let mut command = Command::new("dnsmasq");
    command.args(words.split_whitespace()).stdin(Stdio::null()).stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        skip("no dnsmasq (Debian: dnsmasq-base)");
        return None;
    };
    let dnsmasq = Server(child);
    for v6 in [false, true] {
        let listens = (0..500).any(|_| {
            let is_up = TcpStream::connect(server(v6, DNS)).is_ok();
            if !is_up {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_up
        });
        assert!(listens, "dnsmasq does not listen");
    }
    Some(dnsmasq)
}

fn guarded(port: u16, protocol: DatagramProtocol, unproven: u32) -> Option<Guard> {
    let udp_ports = vec![UdpPort { port, protocol: Some(protocol) }];
    let watch = if unproven == 0 { Watch::Always } else { Watch::Backlog { shift: 2 } };
    // The flood's prefixes are few; what bounds it here is the challenge.
    let udp_rate = 1_000_000;
    start(GuardConfig { udp_ports, udp_rate, udp_unproven: unproven, ..config(&[], watch) })
}

fn udp(to: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Asks as a stub resolver does: twice by UDP, by TCP where the answer is truncated.
fn resolve(to: SocketAddr) -> bool {
    let socket = udp(to);
    for _ in 0..2 {
        let mut answer = [0; 512];
        socket.send(QUESTION).unwrap();
        let Ok(len) = socket.recv(&mut answer) else { continue };
        if answer[2] & 2 == 0 {
            return answer[..len].ends_with(&[192, 0, 2, 77]);
        }
        let by_tcp = || {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(&[&(QUESTION.len() as u16).to_be_bytes(), QUESTION].concat())?;
            let mut len = [0; 2];
            stream.read_exact(&mut len)?;
            let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut answer).map(|()| answer.ends_with(&[192, 0, 2, 77]))
        };
        return by_tcp().unwrap_or(false);
    }
    false
}

/// Asks as clients of game servers do: a challenge is returned, the server's own and the guard's.
fn query(to: SocketAddr) -> bool {
    let (socket, mut token) = (udp(to), Vec::new());
    for _ in 0..5 {
        let mut answer = [0; 512];
        socket.send(&[QUERY, &token].concat()).unwrap();
        match socket.recv(&mut answer) {
            Ok(9) if answer[4] == b'A' => token = answer[5..9].to_vec(),
            Ok(len) => return answer[..len].starts_with(b"\xff\xff\xff\xffI"),
            Err(_) => {}
        }
    }
    false
}

/// `rounds` honest questions, each behind `burst` forged ones; how many were answered.
fn beside(
    rig: &Rig,
    (to, payload): (SocketAddr, &'static [u8]),
    (rounds, burst): (usize, usize),
    ask: fn(SocketAddr) -> bool,
) -> usize {
    rig.run(move || {
        let mut flood = Flood::datagrams(to, payload);
        let mut lost = 0;
        for _ in 0..rounds {
            flood.send(burst);
            lost += usize::from(!ask(to));
            if lost > 3 {
                return 0;
            }
        }
        rounds - lost
    })
}

#[test]
fn an_unchanged_dns_server_answers_honest_clients_beside_forged_questions() {
    let Some(rig) = Rig::new() else { return };
    let Some(_dnsmasq) = dnsmasq() else { return };
    for v6 in [false, true] {
        let Some(guard) = guarded(DNS, DatagramProtocol::Dns, 0) else { return };
        let to = server(v6, DNS);
        let (rounds, burst) = (100, 150);
        let answered = beside(&rig, (to, QUESTION), (rounds, burst), resolve);
        assert!(answered * 100 >= rounds * 99, "{answered} of {rounds}, IPv6 {v6}");
        // The server has seen honest questions, and next to none of the forged ones: the first was
        // asked again by TCP, and that connection proved the others.
        let (passed, challenged) =
            (counted(&guard, "datagrams"), counted(&guard, "datagrams_challenged"));
        assert!(passed <= 2 * rounds as u64, "{passed} passed");
        assert!(challenged >= (rounds * burst / 2) as u64, "{challenged} challenged");
        assert!(counted(&guard, "adopted") >= 1, "the connection was made by a cookie");
    }
}

/// What `dig` prints of a question, with these words.
fn dig(rig: &Rig, to: &'static str, words: &'static str) -> Option<String> {
    rig.run(move || {
        let mut command = Command::new("dig");
        command.arg(format!("@{to}")).args(["honest.example", "A", "+tries=1"]);
        let out = command.args(words.split_whitespace()).output().ok()?;
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    })
}

#[test]
fn dig_follows_a_truncated_answer_and_is_not_challenged_again() {
    let Some(rig) = Rig::new() else { return };
    let Some(_dnsmasq) = dnsmasq() else { return };
    for (to, all) in [
        (SERVER.0, ["", "+noedns"]),
        (SERVER.1, ["+cookie=0123456789abcdef +dnssec", "+norecurse"]),
    ] {
        for words in all {
            let Some(guard) = guarded(DNS, DatagramProtocol::Dns, 0) else { return };
            let Some(first) = dig(&rig, to, words) else {
                skip("no dig (Debian: bind9-dnsutils)");
                return;
            };
            assert!(first.contains("retrying in TCP mode"), "{first}");
            assert!(first.contains("192.0.2.77"), "{first}");
            let second = dig(&rig, to, words).unwrap();
            assert!(!second.contains("TCP") || second.contains("(UDP)"), "{second}");
            assert!(second.contains("192.0.2.77"), "{second}");
            let counts = ["datagrams_challenged", "datagrams"].map(|name| counted(&guard, name));
            assert_eq!(counts, [1, 1], "{words}");
        }
    }
}

/// A game server's answers to queries, as servers of today give them: with a challenge of their
/// own. Ends with the test's process.
fn game_server(to: SocketAddr) {
    let socket = UdpSocket::bind(to).unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            let answer: &[u8] = match &query[..len] {
                query if !query.starts_with(QUERY) => continue,
                query if query.ends_with(b"own!") => b"\xff\xff\xff\xffI\x11a server\0a map\0",
                _ => b"\xff\xff\xff\xffAown!",
            };
            let _ = socket.send_to(answer, from);
        }
    });
}

#[test]
fn a_game_server_answers_honest_queries_beside_forged_ones() {
    let Some(rig) = Rig::new() else { return };
    for v6 in [false, true] {
        game_server(server(v6, GAME));
        let Some(guard) = guarded(GAME, DatagramProtocol::A2s, 0) else { return };
        let to = server(v6, GAME);
        let (rounds, burst) = (100, 150);
        let answered = beside(&rig, (to, QUERY), (rounds, burst), query);
        assert!(answered * 100 >= rounds * 99, "{answered} of {rounds}, IPv6 {v6}");
        let passed = counted(&guard, "datagrams");
        // The server's own challenge, and its answer, of each; a few were sent again.
        assert!(passed <= 3 * rounds as u64, "{passed} passed");
        let challenged = counted(&guard, "datagrams_challenged");
        assert!(challenged >= (rounds * burst / 2) as u64, "{challenged} challenged");
        assert!(counted(&guard, "sources_proven") >= 1);
    }
}

#[test]
fn few_questions_are_never_challenged() {
    let Some(rig) = Rig::new() else { return };
    for v6 in [false, true] {
        game_server(server(v6, GAME));
        let Some(guard) = guarded(GAME, DatagramProtocol::A2s, 5000) else { return };
        let to = server(v6, GAME);
        assert_eq!(beside(&rig, (to, QUERY), (10, 3), query), 10);
        assert_eq!(counted(&guard, "datagrams_challenged"), 0);
        assert_eq!(counted(&guard, "datagrams"), 10 * (3 + 2));
    }
}

/// Questions a second that the server answers to one client with 64 under way, without a guard.
fn capacity(rig: &Rig, to: SocketAddr, question: &'static [u8]) -> u64 {
    rig.run(move || {
        let socket = udp(to);
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (began, mut answers, mut answer) = (Instant::now(), 0, [0; 512]);
        (0..64).for_each(|_| drop(socket.send(question)));
        while began.elapsed() < Duration::from_secs(2) {
            answers += u64::from(socket.recv(&mut answer).is_ok());
            let _ = socket.send(question);
        }
        (answers as f64 / began.elapsed().as_secs_f64()) as u64
    })
}

/// Honest questions for three seconds, one after the other, beside so many forged ones a second;
/// how many were asked, how many answered, and how many forged ones were sent a second.
fn beside_rate(
    rig: &Rig,
    (to, payload): (SocketAddr, &'static [u8]),
    pace: u64,
    ask: fn(SocketAddr) -> bool,
) -> (usize, usize, u64) {
    let (frame, pairs) = rig::frame::datagram(MAC, to, payload);
    rig.run(move || {
        let (ended, sent, lasted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(1));
        let began = Instant::now();
        let lasts = Duration::from_secs(3);
        let index = interface(rig::PEER).unwrap().0;
        let (asked, good) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (sender, map) = rig::frame::sender(&frame, &pairs, pace);
                while !ended.load(Ordering::Relaxed) {
                    match sender.run_live(index, &frame, 1 << 21) {
                        Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                            panic!("{error}")
                        }
                        _ => {}
                    }
                }
                let count = map.get(&0_u32.to_ne_bytes()).unwrap();
                sent.store(
                    u64::from_ne_bytes(*count[8..].first_chunk().unwrap()),
                    Ordering::Relaxed,
                );
                lasted.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            });
            std::thread::sleep(Duration::from_millis(300));
            let (from, mut asked, mut good) = (Instant::now(), 0, 0);
            while from.elapsed() < lasts {
                asked += 1;
                good += usize::from(ask(to));
                std::thread::sleep(Duration::from_millis(2));
            }
            ended.store(true, Ordering::Relaxed);
            (asked, good)
        });
        (asked, good, sent.load(Ordering::Relaxed) * 1_000_000 / lasted.load(Ordering::Relaxed))
    })
}

/// Floods of once to ten times what the server answers. It measures: `FLOODWALL_DEEP=1`.
#[test]
fn honest_questions_are_answered_beside_floods_of_the_servers_capacity() {
    if std::env::var_os("FLOODWALL_DEEP").is_none() {
        return skip("it measures: FLOODWALL_DEEP=1");
    }
    let Some(rig) = Rig::new() else { return };
    let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
    assert!(rig::ip(&format!("link set {} address {mac}", rig::IFACE)));
    let Some(_dnsmasq) = dnsmasq() else { return };
    for v6 in [false, true] {
        game_server(server(v6, GAME));
    }
    type Ask = fn(SocketAddr) -> bool;
    let services: [(&str, u16, &[u8], DatagramProtocol, Ask); 2] = [
        ("dnsmasq", DNS, QUESTION, DatagramProtocol::Dns, resolve),
        ("a2s", GAME, QUERY, DatagramProtocol::A2s, query),
    ];
    let mut missed = Vec::new();
    for (name, port, payload, protocol, ask) in services {
        for v6 in [false, true] {
            let to = server(v6, port);
            let most = capacity(&rig, to, payload);
            println!("{name}, IPv6 {v6}: answers {most} questions a second");
            for times in [1, 2, 5, 10] {
                let row = |what: &str| {
                    // The sender pauses, and does not make up for it.
                    let pace = times * most * 5 / 4;
                    let (asked, good, sent) = beside_rate(&rig, (to, payload), pace, ask);
                    let part = 100.0 * good as f64 / asked as f64;
                    let had = sent as f64 / most as f64;
                    println!(
                        "  {what} {had:.1} times ({times} planned): {sent} sent/s, {good} of \
                         {asked}, {part:.1} %"
                    );
                    part
                };
                if [2, 10].contains(&times) {
                    // Without a program a veth takes no frames of programs.
                    let _pass = rig::passes(rig::IFACE).unwrap();
                    row("direct ");
                }
                // The default: what may pass of unproven sources, and the prefix's rate.
                let udp_ports = vec![UdpPort { port, protocol: Some(protocol) }];
                let watch = Watch::Backlog { shift: 2 };
                let own = GuardConfig {
                    udp_ports,
                    udp_rate: 5000,
                    udp_unproven: 5000,
                    ..config(&[], watch)
                };
                let Some(guard) = start(own) else { return };
                let part = row("guarded");
                drop(guard);
                if part < 99.0 {
                    missed.push(format!("{name}, IPv6 {v6}, {times} times: {part:.1} %"));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
