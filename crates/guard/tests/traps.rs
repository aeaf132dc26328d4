//! What stands in a guard's way: settings, listeners, drivers, tags; and that nothing is left.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::rig::{
    self, IFACE, Rig, close, config, connect_and_echo, counted, echo, server, skip, start, sysctl,
};
use floodwall_device::{HalfStanding, Placement};
use floodwall_guard::{GuardConfig, GuardError, Notice, Trouble, Watch};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, listen, socket};

const PORT: u16 = 7000;

fn said(command: &str) -> String {
    let mut words = command.split_whitespace();
    let out = rig::output(Command::new(words.next().unwrap()).args(words));
    out.map_or_else(|error| error.to_string(), |out| String::from_utf8_lossy(&out.stdout).into())
}

/// Every setting of the namespace, and what tools say of links, queues and rules.
fn everything() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    settings(Path::new("/proc/sys/net"), &mut found);
    for command in [
        "ip -d link",
        "ip address",
        "ip route show table all",
        "tc qdisc show",
        &format!("tc filter show dev {IFACE} ingress"),
        "nft list ruleset",
        &format!("ethtool -k {IFACE}"),
    ] {
        found.insert(command.to_owned(), said(command));
    }
    found
}

fn settings(folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            settings(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.insert(path.display().to_string(), text);
        }
    }
}

#[test]
fn nothing_is_left_behind() {
    let Some(rig) = Rig::new() else { return };
    echo(server(false, PORT));
    let connect = || rig.run(|| connect_and_echo(server(false, PORT))).unwrap();
    connect();
    let before = everything();
    assert!(before.len() > 100, "settings are read");
    assert_eq!(Placement::look(IFACE).unwrap(), HalfStanding::Absent);
    for half_first in [false, true] {
        let own = GuardConfig { half_first, ..config(&[PORT], Watch::Always) };
        let guard = match floodwall_guard::Guard::start(own.clone()) {
            Err(GuardError::Half(why)) => return skip(&why.to_string()),
            Ok(guard) => guard,
            Err(_) => match start(own) {
                Some(guard) => guard,
                None => return,
            },
        };
        connect();
        assert_eq!(counted(&guard, "adopted"), 1);
        assert_ne!(said("ip -d link"), before["ip -d link"], "the program shows");
        let half = Placement::look(IFACE).unwrap();
        let goes_first = matches!(half, HalfStanding::Threads { nice: ..0 });
        assert_eq!(goes_first, half_first, "{half:?}, {:?}", guard.half());
        close(guard);
        connect();
        // The kernel takes the last references back on a thread of its own.
        let is_absent = || Placement::look(IFACE).unwrap() == HalfStanding::Absent;
        assert!((0..1000).any(|_| is_absent() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }));
        let after = everything();
        let changed: Vec<_> =
            before.iter().filter(|(key, text)| after.get(*key) != Some(text)).collect();
        assert!(changed.is_empty(), "{changed:?}");
    }
}

#[test]
fn cookies_that_are_turned_off_are_noticed_and_connections_go_on() {
    let Some(rig) = Rig::new() else { return };
    echo(server(true, PORT));
    let Some(mut guard) = start(config(&[PORT], Watch::Always)) else { return };
    let connect = || rig.run(|| connect_and_echo(server(true, PORT))).unwrap();
    connect();
    assert_eq!(guard.follow().unwrap(), [Notice::Awake(PORT, true)]);
    sysctl("ipv4/tcp_syncookies", "0");
    assert_eq!(guard.follow().unwrap(), [Notice::Cookies(false)]);
    connect();
    assert_eq!(counted(&guard, "syn_answered"), 1, "the kernel answered the second");
    assert!(guard.status().unwrap().paused);
    sysctl("ipv4/tcp_syncookies", "1");
    assert_eq!(guard.follow().unwrap(), [Notice::Cookies(true)]);
    connect();
    assert_eq!(counted(&guard, "syn_answered"), 2);
    sysctl("ipv4/tcp_window_scaling", "0");
    assert_eq!(guard.follow().unwrap(), [Notice::Offers]);
    connect();
    assert_eq!(counted(&guard, "adopted"), 3);
    guard.end().unwrap();
    connect();
    assert_eq!(counted(&guard, "syn_answered"), 3, "the kernel answers what comes at its end");
}

#[test]
fn a_listener_that_goes_and_an_interface_that_goes_are_noticed() {
    let Some(rig) = Rig::new() else { return };
    let listener = TcpListener::bind(server(false, PORT)).unwrap();
    let Some(mut guard) = start(config(&[PORT], Watch::Always)) else { return };
    assert_eq!(guard.follow().unwrap(), []);
    close(listener);
    assert_eq!(guard.follow().unwrap(), [Notice::Listener(PORT, false)]);
    let refused = rig.run(|| TcpStream::connect(server(false, PORT)).unwrap_err().kind());
    assert_eq!(refused, std::io::ErrorKind::ConnectionRefused, "the kernel resets, as before");
    let _listener = TcpListener::bind(server(false, PORT)).unwrap();
    assert_eq!(guard.follow().unwrap(), [Notice::Listener(PORT, true)]);
    assert!(rig::ip(&format!("link set {IFACE} down")));
    assert_eq!(guard.follow().unwrap(), [Notice::Carrier(false)]);
    assert!(rig::ip(&format!("link delete {IFACE}")));
    assert!(matches!(guard.follow(), Err(GuardError::NoInterface(_))));
}

#[test]
fn a_multipath_listener_is_left_to_the_kernel_and_noticed() {
    let Some(rig) = Rig::new() else { return };
    let mptcp = Protocol::from_raw(NonZeroU32::new(262).unwrap());
    let Ok(listener) = socket(AddressFamily::INET, SocketType::STREAM, Some(mptcp)) else {
        return skip("this kernel has no MPTCP");
    };
    bind(&listener, &server(false, PORT)).unwrap();
    listen(&listener, 16).unwrap();
    let Some(mut guard) = start(config(&[PORT], Watch::Always)) else { return };
    rig.run(|| TcpStream::connect(server(false, PORT)).map(drop)).unwrap();
    assert_eq!(counted(&guard, "syn_answered"), 0);
    assert_eq!(guard.follow().unwrap(), [Notice::Multipath(PORT)]);
}

#[test]
fn a_full_accept_queue_takes_as_many_as_without_the_guard() {
    let Some(rig) = Rig::new() else { return };
    let connected = |v6, port| {
        let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let listener = socket(family, SocketType::STREAM, None).unwrap();
        bind(&listener, &server(v6, port)).unwrap();
        listen(&listener, 4).unwrap();
        let held: Vec<TcpStream> = rig.run(move || {
            let patience = Duration::from_millis(400);
            let connect = |_| TcpStream::connect_timeout(&server(v6, port), patience).ok();
            (0..8).filter_map(connect).collect()
        });
        (held.len(), listener)
    };
    let direct = [false, true].map(|v6| connected(v6, PORT).0);
    assert_eq!(direct, [5, 5]);
    let Some(guard) = start(config(&[7001], Watch::Always)) else { return };
    let guarded = [false, true].map(|v6| connected(v6, 7001).0);
    assert_eq!(guarded, direct);
    assert!(counted(&guard, "syn_queue_full") >= 6);
}

#[test]
fn in_front_of_the_systems_stack_connections_are_taken_over_too() {
    let Some(rig) = Rig::new() else { return };
    for v6 in [false, true] {
        echo(server(v6, PORT));
    }
    let generic = GuardConfig { generic: true, ..config(&[PORT], Watch::Always) };
    let Some(guard) = start(generic) else { return };
    for v6 in [false, true] {
        for _ in 0..10 {
            rig.run(move || connect_and_echo(server(v6, PORT))).unwrap();
        }
    }
    assert_eq!(counted(&guard, "syn_answered"), 20);
    // A client's ACK and its first data can pass on two cores at once, each with a note.
    assert!(counted(&guard, "adopted") >= 20, "{:?}", guard.status());
}

#[test]
fn behind_a_vlan_tag_connections_are_taken_over_too() {
    let Some(rig) = Rig::new() else { return };
    fn vlan(name: &str, (four, six): (&str, &str)) -> bool {
        assert!(
            rig::output(
                Command::new("ethtool").args(["-K", name, "txvlan", "off", "rxvlan", "off"])
            )
            .is_ok()
        );
        rig::ip(&format!("link add link {name} name {name}.5 type vlan id 5"))
            && rig::ip(&format!("address add {four}/24 dev {name}.5"))
            && rig::ip(&format!("address add {six}/64 dev {name}.5 nodad"))
            && rig::ip(&format!("link set {name}.5 up"))
    }
    if !vlan(IFACE, ("10.78.0.1", "fd78::1"))
        || !rig.run(move || vlan("gd1", ("10.78.0.2", "fd78::2")))
    {
        return skip("no VLAN device here");
    }
    let addr = |v6| {
        std::net::SocketAddr::new(if v6 { "fd78::1" } else { "10.78.0.1" }.parse().unwrap(), PORT)
    };
    for v6 in [false, true] {
        echo(addr(v6));
    }
    let Some(guard) = start(config(&[PORT], Watch::Always)) else { return };
    for v6 in [false, true] {
        for _ in 0..10 {
            rig.run(move || connect_and_echo(addr(v6))).unwrap();
        }
    }
    assert_eq!(counted(&guard, "syn_answered"), 20);
    assert_eq!(counted(&guard, "adopted"), 20, "{:?}", guard.status());
}

/// By the kernel's own test runs, where there is no VLAN device: the tag is in the answer, and an
/// ACK with the answer's numbers behind one is believed.
#[test]
fn a_vlan_tag_is_kept() {
    let Some(_rig) = Rig::new() else { return };
    for v6 in [false, true] {
        let _listener = std::net::TcpListener::bind(server(v6, PORT)).unwrap();
        let Some(guard) = start(config(&[PORT], Watch::Always)) else { return };
        let l4 = 18 + if v6 { 40 } else { 20 };
        for (n, tag) in [[0x81, 0x00, 0x60, 0x05], [0x88, 0xa8, 0x00, 0x07]].into_iter().enumerate()
        {
            let tagged = |numbers, flags, options: &[u8]| {
                let mut frame = rig::frame::frame(v6, (4711, PORT), numbers, flags, options);
                frame.splice(12..12, tag);
                frame
            };
            let mut syn = tagged((5, 0), 2, &[2, 4, 5, 180]);
            let bytes = syn.len();
            assert_eq!(guard.classifier().run(&mut syn, 1).unwrap().0, 3, "it is sent back");
            assert_eq!((syn.len(), &syn[12..16]), (bytes, &tag[..]), "IPv6 {v6}");
            assert_eq!(syn[l4 + 13], 0x12, "SYN and ACK");
            let number = u32::from_be_bytes(*syn[l4 + 4..].first_chunk().unwrap());
            let mut ack = tagged((6, number.wrapping_add(1)), 0x10, &[]);
            let proven_before = counted(&guard, "ack_proven");
            assert_eq!(guard.classifier().run(&mut ack, 1).unwrap().0, 2, "it goes up");
            // The second finds the proof of the first, which is of the same flow, unless it comes
            // too late for that. Behind the note, which comes out too.
            let is_proven = counted(&guard, "ack_proven") > proven_before;
            assert!(is_proven || n > 0, "the first has its proof with it");
            let at = ack.len() - (l4 + 20);
            assert_eq!((at, &ack[at + 12..at + 16]), (if is_proven { 32 } else { 0 }, &tag[..]));
            let seen = ["ack_proven", "ack_repeated"].map(|name| counted(&guard, name));
            assert_eq!(seen.iter().sum::<u64>(), n as u64 + 1, "{seen:?}");
            let mut forged = tagged((6, number ^ 0x1000), 0x11, &[2, 4, 5, 180]);
            forged[l4 + 1] ^= 1;
            assert_eq!(guard.classifier().run(&mut forged, 1).unwrap().0, 1, "it is dropped");
        }
    }
}

/// By the kernel's own test runs: what follows a client's ACK on another core has a note too, since
/// it can come to the kernel's TCP before the ACK.
#[test]
fn what_follows_an_ack_on_another_core_has_a_note_of_its_own() {
    let Some(_rig) = Rig::new() else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip("one core only");
    }
    let on_core = |core| {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
    };
    for v6 in [false, true] {
        let _listener = std::net::TcpListener::bind(server(v6, PORT)).unwrap();
        let Some(guard) = start(config(&[PORT], Watch::Always)) else { return };
        let l4 = 14 + if v6 { 40 } else { 20 };
        on_core(0);
        let mut syn = rig::frame::frame(v6, (4711, PORT), (5, 0), 2, &[2, 4, 5, 180]);
        assert_eq!(guard.classifier().run(&mut syn, 1).unwrap().0, 3, "it is sent back");
        let number = u32::from_be_bytes(*syn[l4 + 4..].first_chunk().unwrap());
        for core in [0, 1] {
            on_core(core);
            let mut ack =
                rig::frame::frame(v6, (4711, PORT), (6, number.wrapping_add(1)), 0x10, &[]);
            assert_eq!(guard.classifier().run(&mut ack, 1).unwrap().0, 2, "it goes up");
        }
        assert_eq!(counted(&guard, "ack_proven"), 2, "IPv6 {v6}: {:?}", guard.status());
    }
}

/// Runs `nft` with these words; false where it is not there.
fn nft(words: &str) -> bool {
    let out = rig::output(Command::new("nft").args(words.split_whitespace()));
    out.is_ok_and(|out| {
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        true
    })
}

/// Rules of which each breaks connections: what makes them, and words on each.
const RULES: [(&[&str], &str); 3] = [
    (
        &[
            "add chain inet trap in { type filter hook input priority 0 ; }",
            "add rule inet trap in tcp flags & (fin|syn|rst|ack) != syn ct state new drop",
        ],
        "drops new connections without a SYN",
    ),
    (
        &[
            "add chain inet trap in { type filter hook input priority 0 ; }",
            "add rule inet trap in ct state invalid drop",
        ],
        "net.netfilter.nf_conntrack_tcp_loose is 0, and the rule `ct state",
    ),
    (
        &[
            "add chain inet trap pre { type nat hook prerouting priority -100 ; }",
            "add rule inet trap pre tcp dport 7000 redirect to :7001",
        ],
        "sends port 7000 elsewhere",
    ),
];

#[test]
fn rules_that_break_connections_are_refused_at_the_start_and_noticed_later() {
    let Some(_rig) = Rig::new() else { return };
    echo(server(false, PORT));
    let anyway = GuardConfig { ignore_rules: true, ..config(&[PORT], Watch::Always) };
    let Some(mut guard) = start(anyway) else { return };
    assert_eq!(guard.follow().unwrap(), []);
    for (rules, words) in RULES {
        if !nft("add table inet trap") {
            return skip("no nft (Debian: nftables)");
        }
        let is_loose = if words.contains("loose") { "0" } else { "1" };
        let _ = std::fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", is_loose);
        assert_eq!(
            guard.follow().unwrap(),
            [],
            "an empty table, and a setting alone, break nothing"
        );
        assert!(rules.iter().all(|rule| nft(rule)));
        let noticed = guard.follow().unwrap();
        let [Notice::Rule(text)] = &noticed[..] else { panic!("{noticed:?}") };
        assert!(text.contains(words), "{text}");
        assert_eq!(guard.follow().unwrap(), [], "it is said once");
        let refused = floodwall_guard::Guard::start(config(&[PORT], Watch::Always)).unwrap_err();
        assert!(matches!(&refused, GuardError::Rule(why) if why == text), "{refused}");
        assert!(nft("delete table inet trap"));
        assert_eq!(guard.follow().unwrap(), [Notice::RulesWell]);
    }
}

#[test]
fn a_check_makes_a_connection_and_leaves_nothing() {
    let Some(_rig) = Rig::new() else { return };
    // One service at one address, one at all, one port without.
    echo(server(false, PORT));
    echo("[::]:7001".parse().unwrap());
    let Some(guard) = start(config(&[PORT], Watch::Always)) else { return };
    close(guard);
    let (ports, before) = ([PORT, 7001, 7002], everything());
    let found = |trouble: Option<Trouble>, words: &str| {
        let all = floodwall_guard::check(IFACE, &ports);
        let is =
            |it: &&floodwall_guard::GuardFinding| it.trouble == trouble && it.text.contains(words);
        (all.iter().filter(is).count(), all)
    };
    let (made, all) = found(None, "through a guard was made");
    assert_eq!(made, 3, "{all:#?}");
    let after = everything();
    let changed = |(key, text): &(&String, &String)| {
        after.get(*key) != Some(*text) && !key.contains("nr_") && !key.contains("random")
    };
    let changed: Vec<_> = before.iter().filter(changed).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    // A rule that no look at its text finds.
    for rule in [
        "add table inet trap",
        "add chain inet trap away",
        "add rule inet trap away drop",
        "add chain inet trap in { type filter hook input priority 0 ; }",
        "add rule inet trap in tcp flags & (syn|ack) == ack ct state new jump away",
    ] {
        if !nft(rule) {
            return skip("no nft (Debian: nftables)");
        }
    }
    let (breaks, all) = found(Some(Trouble::Breaks), "is made without a guard and not through one");
    assert_eq!(breaks, 3, "{all:#?}");
}
