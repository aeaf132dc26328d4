//! The runner of scripts: what it refuses, and how Floodwall and the kernel play our own ones.
//!
//! In memory every script passes. Where the kernel differs, `KERNEL_DIFFERS` gives the reason.

#![expect(clippy::unwrap_used, reason = "a failing test may panic")]
#![expect(clippy::disallowed_methods, reason = "a namespace belongs to a thread")]

#[path = "pkt/reassembly.rs"]
mod reassembly;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use floodwall_testkit::pkt::{
    Failure, KERNEL_DIFFERS, Kernel, Memory, Profile, Script, Traced, is_of_other_family,
    kernel_differs, parse, parse_with, play,
};

fn in_memory(script: &Script) -> Result<(), Failure> {
    play(script, &mut Memory::new(script).unwrap())
}

/// Plays a script against the kernel; `None`, with the reason printed, where that is not allowed.
fn on_kernel(script: Script) -> Option<Result<(), Failure>> {
    let player = thread::spawn(move || {
        let kernel = Kernel::own_namespace().and_then(|()| Kernel::new(&script));
        match kernel {
            Ok(mut kernel) => Some(play(&script, &mut kernel)),
            Err(why) => {
                eprintln!("SKIPPED against the kernel: {why}");
                None
            }
        }
    });
    player.join().unwrap()
}

fn scripts() -> Vec<(PathBuf, Script)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/conformance/tcp");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let script = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, script)
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn every_script_says_its_rule_and_can_be_read() {
    let scripts = scripts();
    assert!(scripts.len() >= 10);
    for (path, script) in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//") && text.contains("RFC "), "{}", path.display());
        assert!(!script.is_empty());
    }
}

#[test]
fn floodwall_passes_every_script_over_both_families() {
    let mut failures = Vec::new();
    for (path, script) in scripts() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for is_ipv6 in [false, true] {
            if is_of_other_family(&name, is_ipv6) {
                continue;
            }
            let script = if is_ipv6 { script.clone().over_ipv6() } else { script.clone() };
            if let Err(error) = in_memory(&script) {
                failures.push(format!("{name} (IPv6: {is_ipv6}): {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A script against the kernel. Its time is real: on a machine that is busy a play may be late, and
/// is repeated.
fn passes_on_kernel(script: &Script) -> Result<(), Failure> {
    let once = || on_kernel(script.clone()).unwrap_or(Ok(()));
    once().or_else(|_| once()).or_else(|_| once())
}

/// Whether the kernel fails a script as it should, within as many plays.
fn fails_on_kernel(script: &Script, is_expected: impl Fn(&Failure) -> bool) -> Result<(), String> {
    let once = || match on_kernel(script.clone()) {
        None => Ok(()),
        Some(Ok(())) => Err("it passes".to_owned()),
        Some(Err(failure)) if is_expected(&failure) => Ok(()),
        Some(Err(failure)) => Err(failure.to_string()),
    };
    once().or_else(|_| once()).or_else(|_| once())
}

/// Scripts that are played at a time: most of their time they wait.
const AT_A_TIME: usize = 24;

#[test]
fn the_kernel_passes_our_scripts_over_both_families_but_for_the_differences() {
    let mut plays = Vec::new();
    for (path, script) in scripts() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        for is_ipv6 in [false, true] {
            let differs = kernel_differs(&name).is_some();
            if script.has_code() || is_of_other_family(&name, is_ipv6) || differs {
                continue;
            }
            let script = if is_ipv6 { script.clone().over_ipv6() } else { script.clone() };
            plays.push((name.clone(), is_ipv6, script));
        }
    }
    assert!(plays.len() >= 20);
    // Each in a namespace of its own.
    let (next, late) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let player = || {
            while let Some(play) = plays.get(next.fetch_add(1, Ordering::Relaxed)) {
                if passes_on_kernel(&play.2).is_err() {
                    late.lock().unwrap().push(play);
                }
            }
        };
        (0..AT_A_TIME).for_each(|_| drop(scope.spawn(player)));
    });
    // A script that failed beside others is played again alone.
    let mut failures = Vec::new();
    for (name, is_ipv6, script) in late.into_inner().unwrap() {
        if let Err(error) = passes_on_kernel(script) {
            failures.push(format!("{name} (IPv6: {is_ipv6}): {error}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(KERNEL_DIFFERS.iter().all(|(_, why)| !why.is_empty()));
}

/// A connection that is open, and its line count.
const OPEN: &str = "--tolerance_usecs=200000
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 32792 <mss 1000,nop,nop,sackOK>
+0 > S. 0:0(0) ack 1 <...>
+0.01 < . 1:1(0) ack 1 win 257
+0 accept(3, ..., ...) = 4
";

#[test]
fn a_script_that_is_wrong_fails_at_its_line() {
    for (event, part) in [
        ("+0 read(4, ..., 10) = 5", "does not return at once"),
        ("+0 write(4, ..., 10) = 11", "expected 11"),
        ("+0 write(9, ..., 10) = 10", "EBADF"),
        ("+0 > . 1:1(0) ack 1", "nothing was sent"),
        ("+0 getsockopt(4, SOL_SOCKET, SO_ERROR, [104], [4]) = 0", "expected [104]"),
        ("+0...0.02 read(4, ..., 10) = 0", "has not returned"),
        ("+0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 5", "only SOCK_STREAM"),
        ("+0 sendfile(4, 5, [0], 5) = 5", "no file of this script"),
        ("+0...0.3 poll([{fd=4, events=POLLIN, revents=0}], 1, 60) = 1", "has not returned"),
    ] {
        let script = parse(&format!("{OPEN}{event}\n")).unwrap();
        let is_expected = |failure: &Failure| failure.line == 9 && failure.what.contains(part);
        let failure = in_memory(&script).expect_err(event);
        assert!(is_expected(&failure), "{event}: {failure}");
        fails_on_kernel(&script, is_expected).unwrap_or_else(|why| panic!("{event}: {why}"));
    }
    for (event, part) in [
        ("+0 > P. 1:12(11) ack 1", "expected"),
        ("+0 > . 1:11(10) ack 1", "expected"),
        ("+0 > P. 2:12(10) ack 1", "expected"),
        ("+0 > P. 1:11(10) ack 2", "expected"),
        ("+0 > P. 1:11(10) ack 1 win 1", "expected"),
        ("+0 > P. 1:11(10) ack 1 <nop,nop,TS val 1 ecr 1>", "expected"),
        ("+0.9 > P. 1:11(10) ack 1", "expected at"),
    ] {
        let text = format!("{OPEN}+0 write(4, ..., 10) = 10\n{event}\n");
        let script = parse(&text).unwrap();
        let is_expected = |failure: &Failure| failure.line == 10 && failure.what.contains(part);
        let failure = in_memory(&script).expect_err(event);
        assert!(is_expected(&failure), "{event}: {failure}");
        fails_on_kernel(&script, is_expected).unwrap_or_else(|why| panic!("{event}: {why}"));
    }
}

#[test]
fn a_traced_play_says_every_packet_and_call_and_what_nothing_asked_for() {
    let script = parse(&format!("{OPEN}+0 write(4, ..., 10) = 10\n+1 close(4) = 0\n")).unwrap();
    let (mut memory, mut lines) = (Memory::new(&script).unwrap(), Vec::new());
    let mut say = |line: &str| lines.push(line.to_owned());
    let mut traced = Traced::new(&mut memory, &mut say);
    let outcome = play(&script, &mut traced);
    traced.end();
    assert_eq!(outcome, Ok(()));
    for part in [
        "  0.000000   Listen(1, 1) = 0",
        "  0.000000 < 49152 > 8080 S 0:0(0) win 32792 [Mss(1000), Nop, Nop, SackOk]",
        "  0.000000 > 8080 > 49152 S. 0:0(0) ack 1",
        "  0.010000   Write(2, 10) = 10",
        "  0.010000 > 8080 > 49152 P. 1:11(10) ack 1",
        "  1.010000 > 8080 > 49152 F. 11:11(0) ack 1",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(part)), "{part}: {lines:#?}");
    }
    let unasked = lines.iter().filter(|line| line.ends_with("(unexpected)")).count();
    assert!(unasked >= 3, "text, its repetition, FIN: {lines:#?}");
}

/// What systems do that Floodwall's settings can follow, in scripts of ours in their words.
#[test]
fn scripts_of_others_systems_find_their_habits() {
    let opened = "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)";
    for (profile, text) in [
        (
            Profile::FreeBsd,
            format!(
                "0.00 `sysctl -w net.inet.tcp.rfc1323=1`\n+0 {opened}
+0.00 > S  0:0(0) win 65535 <mss 1460,nop,wscale 6,sackOK,TS val 100 ecr 0>
+0.10 < S. 0:0(0) ack 1 win 32767 <mss 1460,sackOK,eol,eol>
+0.00 >  . 1:1(0) ack 1 win 65535
+0.00 getsockopt(3, SOL_SOCKET, SO_RCVBUF, [65700], [4]) = 0
+0.00 fcntl(3, F_GETFL) = 0x06 (flags O_RDWR|O_NONBLOCK)
+0.00 < P. 1:11(10) ack 1 win 32767
+0.00 < P. 11:12(1) ack 1 win 32767
+0.00 >  . 1:1(0) ack 12 win 65535
+0.00 recv(3, ..., 1024, MSG_PEEK) = 11
+0.00 < [7:7(0)] icmp time_exceeded ttl_exceeded_in_transit
#ifdef ENDED
+0.00 `sockstat -4 -P tcp -s | grep a | grep -c ESTABLISHED | grep 0`
#endif
+0.00 `sockstat -4 -P tcp -s | grep a | grep -c ESTABLISHED | grep 1`
"
            ),
        ),
        (
            Profile::Linux,
            format!(
                "--local_ip=192.168.3.1/24\n`./defaults.sh`\n0 {opened}
+0 setsockopt(3, SOL_TCP, TCP_INQ, [1], 4) = 0
+0 epoll_create(1) = 5
+0 epoll_ctl(5, EPOLL_CTL_ADD, 3, {{events=EPOLLIN|EPOLLET, fd=3}}) = 0
+0 > S 0:0(0) <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 8>
+0.1 < S. 0:0(0) ack 1 win 65535 <mss 1000,sackOK,nop,nop,nop,wscale 7>
+0 > . 1:1(0) ack 1
+0 epoll_wait(5, {{events=0, ptr=0}}, 1, 0) = 0
+0 < P. 1:11(10) ack 1 win 1000
+0 > . 1:1(0) ack 11
+0 epoll_wait(5, {{events=EPOLLREADY, fd=3}}, 1, 0) = 1
+0 epoll_wait(5, {{events=0, ptr=0}}, 1, 0) = 0
+0 ioctl(3, SIOCINQ, [10]) = 0
+0 recvmsg(3, {{msg_name(...)=..., msg_iov(2)=[{{..., 3}}, {{..., 1}}], msg_flags=0,
     msg_control=[{{cmsg_level=SOL_TCP, cmsg_type=TCP_CM_INQ, cmsg_data=6}}]}}, 0) = 4
+0 sendmsg(3, {{msg_name(...)=..., msg_iov(2)=[{{..., 0}}, {{..., 5}}], msg_flags=0}}, 0) = 5
+0 > P. 1:6(5) ack 11
+0 < P. 11:21(10) ack 6 win 1000
+0 > . 6:6(0) ack 21
+0 write(3, NULL, 5) = -1 EFAULT (Bad address)
"
            ),
        ),
    ] {
        let words = ["-D", "EPOLLREADY=EPOLLIN", "--mtu=1500"].map(str::to_owned);
        let script = parse_with(&text, &words).unwrap();
        assert_eq!(script.profile(), profile);
        in_memory(&script).unwrap_or_else(|failure| panic!("{profile:?}: {failure}"));
        // The same scripts against Floodwall without the profile: each difference shows.
        let lines = text.lines().filter(|line| !line.contains(['`', '#']));
        let own = lines.filter(|line| !line.contains("SO_RCVBUF")).collect::<Vec<_>>().join("\n");
        let theirs = "nop,wscale 6,sackOK,TS val 100 ecr 0";
        let ours = own.replace(theirs, "sackOK,TS val 100 ecr 0,nop,wscale 3");
        let ours = ours.replace("eol", "nop").replace("wscale 8", "wscale 3");
        let script = parse_with(&ours, &words).unwrap();
        assert_eq!(script.profile(), Profile::Own);
        in_memory(&script).expect_err("habits of its own");
    }
}

/// The machine that a script was written on can be known by its SYN, its buffers by their scale.
#[test]
fn a_script_that_sets_nothing_up_is_known_by_its_syn() {
    for (options, profile) in [
        ("mss 1460,nop,wscale 6,sackOK,TS val 1 ecr 0", Profile::FreeBsd),
        ("mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 7", Profile::Linux),
        ("mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 10", Profile::Linux),
        ("mss 1460,sackOK,TS val 1 ecr 0,nop,wscale 3", Profile::Own),
    ] {
        let text = format!(
            "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
+0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
+0 > S 0:0(0) win 65535 <{options}>"
        );
        let script = parse(&text).unwrap();
        assert_eq!(script.profile(), profile, "{options}");
        in_memory(&script).unwrap_or_else(|failure| panic!("{options}: {failure}"));
        let script = parse(&format!("`./defaults.sh`\n{text}")).unwrap();
        assert_eq!(script.profile(), Profile::Linux, "{options}");
        in_memory(&script).expect_err("its settings say the scale");
    }
}

/// What the dialect has beside segments and bytes, in one play each.
#[test]
fn calls_options_and_segments_of_all_kinds_are_understood() {
    for events in [
        // Reading is shut down: what came before is read, then the end.
        "+0 < P. 1:11(10) ack 1 win 257
+0 > . 1:1(0) ack 11
+0 shutdown(4, SHUT_RD) = 0
+0 poll([{fd=4, events=POLLIN|POLLOUT|POLLRDHUP, revents=POLLIN|POLLOUT|POLLRDHUP}], 1, 0) = 1
+0 read(4, ..., 100) = 10
+0 read(4, ..., 100) = 0
+0 write(4, ..., 10) = 10
+0 > P. 1:11(10) ack 11",
        // Waiting for nothing lasts as long as was said.
        "+0...0.1 poll([{fd=4, events=POLLIN, revents=0}], 1, 100) = 0
+0 open(\"zeros\", O_RDONLY) = 6
+0 sendfile(4, 6, [0], 7) = 7
+0 > P. 1:8(7) ack 1
+0 close(6) = 0",
        "+0 setsockopt(4, SOL_TCP, TCP_CONGESTION, \"reno\", 4) = 0
+0 setsockopt(4, SOL_TCP, TCP_CONGESTION, \"unheard\", 7) = -1 ENOENT (none)
+0 setsockopt(4, SOL_TCP, TCP_KEEPIDLE, [7], 4) = 0
+0 setsockopt(4, SOL_SOCKET, SO_KEEPALIVE, [1], 4) = 0
+0 getsockopt(4, SOL_TCP, TCP_KEEPIDLE, [7], [4]) = 0
+7 > . 0:0(0) ack 1",
        "+0 setsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [0xffffffff], 4) = 0
+0 getsockopt(4, SOL_TCP, TCP_NOTSENT_LOWAT, [0xffffffff], [4]) = 0
+0 getsockopt(4, SOL_TCP, TCP_MAXSEG, [1000], [4]) = 0
+0 getsockopt(4, SOL_SOCKET, SO_ACCEPTCONN, [0], [4]) = 0
+0 getsockopt(3, SOL_SOCKET, SO_ACCEPTCONN, [1], [4]) = 0
+0 getsockopt(3, SOL_TCP, TCP_MAXSEG, [536], [4]) = 0
+0 getsockopt(4, SOL_TCP, TCP_UNHEARD, [0], [4]) = -1 ENOPROTOOPT (none)",
        // What is not known, or not for TCP, changes nothing; a new socket's connection begins
        // anew; an option of a listener holds for those to come.
        "+0 < icmp echo_reply
+0 < icmp timestamp_reply
+0 < icmp information_request
+0 close(4) = 0
+0 > F. 1:1(0) ack 1
+0 < R 1:1(0) win 0
+0 close(3) = 0
+0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 setsockopt(3, SOL_TCP, TCP_MAXSEG, [800], 4) = 0
+0 < SEWA 0:0(0) win 9000 <mss 1000,FO,FO 0123456789abcdef,FOEXP 01,md5 00,ECN e1b 1,nop,nop,nop>
+0 > S. 0:0(0) ack 1 <mss 800>",
    ] {
        let script =
            parse(&format!("{OPEN}{events}\n")).unwrap_or_else(|e| panic!("{events}: {e}"));
        in_memory(&script).unwrap_or_else(|failure| panic!("{events}: {failure}"));
    }
}

/// What suites of others say, beside what ours need.
#[test]
fn words_of_other_suites_are_understood() {
    let fresh = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 getsockopt(3, SOL_TCP, TCP_MAXSEG, [536], [4]) = 0
+0 setsockopt(3, SOL_TCP, TCP_MAXSEG, [1000], 4) = 0
+0 getsockopt(3, SOL_TCP, TCP_MAXSEG, [1000], [4]) = 0
+0 getsockopt(3, IPPROTO_TCP, TCP_KEEPINIT, [75], [4]) = 0
+0 setsockopt(3, IPPROTO_TCP, TCP_KEEPINIT, [7], 4) = 0
+0 getsockopt(3, IPPROTO_TCP, TCP_KEEPINIT, [7], [4]) = 0
+0 getsockopt(3, SOL_TCP, TCP_NOTSENT_LOWAT, [0], [4]) = 0
+0 setsockopt(3, SOL_TCP, TCP_NOTSENT_LOWAT, [-1], 4) = 0
+0 getsockopt(3, SOL_TCP, TCP_NOTSENT_LOWAT, [0xffffffff], [4]) = 0
+0 setsockopt(3, SOL_TCP, TCP_CONGESTION, \"\\x72\\x65no\", 4) = 0
+0 getsockopt(3, SOL_TCP, TCP_UNHEARD, [0], [4]) = -1
+0 setsockopt(3, SOL_TCP, TCP_CONGESTION, \"unheard\", 7) = -1
";
    // Without a SYN, numbers count from nothing.
    let bare = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < . 1000:1010(10) ack 77 win 100
+0 > R 77:77(0)
+0 < F 1000:1010(10) win 100
+0 < S 5:5(0) win 9000 <mss 1000>
+0 > S. 0:0(0) ack 6 <mss 1460>
";
    // A packet at any time may take hours.
    let late = format!(
        "{OPEN}+0 setsockopt(4, SOL_TCP, TCP_KEEPIDLE, [7200], 4) = 0
+0 setsockopt(4, SOL_SOCKET, SO_KEEPALIVE, [1], 4) = 0
* > . 0:0(0) ack 1
"
    );
    let errors = format!(
        "{OPEN}+0 < icmp time_exceeded
+0 write(4, ..., 10) = 10
+0 > P. 1:11(10) ack 1
+0 < [1:11(10)] icmp time_exceeded CODE
+.01 < . 1:1(0) ack 11 win 9000
+0 write(4, ..., 10) = 10
+0 > P. 11:21(10) ack 1
"
    );
    for (text, words) in [
        (fresh, &[][..]),
        (bare, &[]),
        (bare, &["--ip_version=ipv4-mapped-ipv6"]),
        (&late, &["--tolerance_usecs", "100000"]),
        (&late, &["--ip_version", "ipv4-mapped-ipv6", "--tolerance_usecs=100000"]),
        (&errors, &["-D", "CODE=frag_reass_exceeded"]),
        (&errors, &["-D", "CODE=exceeded_frag_time", "--ip_version=ipv6", "--mtu=1520"]),
    ] {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let script = parse_with(text, &words).unwrap_or_else(|error| panic!("{text}: {error}"));
        in_memory(&script).unwrap_or_else(|failure| panic!("{text}: {failure}"));
    }
    // An MTU of the command line is that of the family that is played; a script's own is IPv4's.
    let words = ["--mtu=1520".to_owned()];
    assert_eq!(parse_with("", &words).unwrap().over_ipv6().mtu(), 1520);
    assert_eq!(parse("--mtu=1400").unwrap().over_ipv6().mtu(), 1420);
    assert_eq!(parse("").unwrap().over_ipv6().mtu(), 1520);
    for (text, near) in
        [("0 f(\"\\xg1\") = 0", "not supported"), ("0 open(\"\\x1\") = 0", "two digits")]
    {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(near), "{text}: {error}");
    }
    assert!(parse_with("", &["--mtu".to_owned()]).is_err());
}

/// Pipes, sends that may go without a copy, a queue that drops all, and SYNs without options.
#[test]
fn pipes_queues_and_bare_syns_of_other_suites_are_understood() {
    let others = format!(
        "{OPEN}+0 pipe([5, 6]) = 0
+0 < P. 1:101(100) ack 1 win 9000
+0 > . 1:1(0) ack 101
+0 %{{ assert tcpi_bytes_received == 100 }}%
+0 splice(4, NULL, 6, NULL, 60, 0) = 60
+0 %{{ assert tcpi_bytes_received == 100 }}%
+0 read(4, ..., 100) = 40
+0 close(5) = 0
+0 setsockopt(4, SOL_SOCKET, SO_ZEROCOPY, [1], 4) = 0
+0 send(4, ..., 10, MSG_ZEROCOPY) = 10
+0 > P. 1:11(10) ack 101
+0 < . 101:101(0) ack 11 win 9000
+0 `tc qdisc add dev tun0 root pfifo limit 0`
+0 write(4, ..., 10) = 10
+0 `tc qdisc del dev tun0 root`
+.1~+.4 > P. 11:21(10) ack 101
"
    );
    let states = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 %{ assert tcpi_state == TCPI_CLOSED }%
+0 setsockopt(3, IPPROTO_TCP, TCP_NOOPT, [1], 4) = 0
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 %{ assert tcpi_state == TCPI_LISTEN }%
+0 < S 0:0(0) win 9000 <mss 1000,sackOK,TS val 5 ecr 0,wscale 3,nop>
+0 > S. 0:0(0) ack 1 <mss 1460>
";
    for text in [&others, states] {
        let script = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        in_memory(&script).unwrap_or_else(|failure| panic!("{text}: {failure}"));
    }
    let words = ["--ip_version=ipv6".to_owned(), "--mtu=1520".to_owned()];
    let script = parse_with(states, &words).unwrap_or_else(|error| panic!("{error}"));
    in_memory(&script).unwrap_or_else(|failure| panic!("{failure}"));
}

/// What a connection has waited for, and what was lost of what it sent, as Linux counts them.
#[test]
fn a_connections_times_and_losses_are_those_of_tcp_info() {
    let open = OPEN.replace("win 257", "win 9000");
    let text = format!(
        "{open}+0 %{{ assert tcpi_busy_time == 0 and tcpi_reordering == 3
assert tcpi_rcv_mss == 536 and SK_MEMINFO_RCVBUF > 0 and SK_MEMINFO_WMEM_QUEUED == 0 }}%
+0 write(4, ..., 20000) = 20000
+0 > . 1:8001(8000) ack 1
+0 > . 8001:9001(1000) ack 1
+0 %{{ assert SK_MEMINFO_WMEM_QUEUED == 20000 and SK_MEMINFO_WMEM_ALLOC == 9000 }}%
// The window of 9000 bytes is full.
+.015 < . 1:1(0) ack 9001 win 9000
+0 %{{ assert 14000 <= tcpi_busy_time <= 16000
assert 14000 <= tcpi_rwnd_limited <= tcpi_busy_time and tcpi_sndbuf_limited == 0 }}%
+0 > . 9001:18001(9000) ack 1
+.015 < . 1:1(0) ack 9001 win 9000 <sack 10001:14001,nop,nop>
+0 > . 9001:10001(1000) ack 1
+0 %{{ assert tcpi_lost == 1 and tcpi_retrans == 1 and tcpi_reord_seen == 0 }}%
+.015 < . 1:1(0) ack 18001 win 9000
+0 > P. 18001:20001(2000) ack 1
+0 %{{ assert tcpi_lost == 0 and tcpi_retrans == 0 }}%
+.015 < . 1:1(0) ack 20001 win 9000
+0 %{{ busy = tcpi_busy_time }}%
+1 %{{ assert tcpi_busy_time == busy and 58000 <= busy <= 62000 }}%
"
    );
    for is_ipv6 in [false, true] {
        let script = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let script = if is_ipv6 { script.over_ipv6() } else { script };
        in_memory(&script).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A timestamp that a script does not see it need not name either.
#[test]
fn an_echo_may_be_of_options_that_were_left_open() {
    let opened = "0 socket(..., SOCK_STREAM|SOCK_NONBLOCK, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 accept(3, ..., ...) = -1 EAGAIN (none)
+0 < S 0:0(0) win 9000 <mss 1000,nop,nop,TS val 5 ecr 0>
+0 > S. 0:0(0) ack 1 OPTIONS
+0 < . 1:1(0) ack 1 win 9000 <nop,nop,TS val 6 ecr 77>
+0 accept(3, ..., ...) = 4
";
    let script = parse(&opened.replace("OPTIONS", "<...>")).unwrap();
    in_memory(&script).unwrap();
    let script = parse(&opened.replace("OPTIONS", "<mss 1460,nop,nop,TS val 1 ecr 5>")).unwrap();
    let failure = in_memory(&script).expect_err("never sent");
    assert!(failure.line == 7 && failure.what.contains("ecr 77"), "{failure}");
}

#[test]
fn what_is_wrong_or_not_supported_is_refused_with_line_and_word() {
    for (text, line, near, what) in [
        ("+0 nonsense(3) = 0", 1, "nonsense(3)", "call is not supported"),
        ("\n\n+0 < S 0:1(0) win 1", 3, ")", "the end is not"),
        ("+0 < S 0:0(0)", 1, "end", "state its window"),
        ("+0 < X 0:0(0) win 1", 1, "X", "a flag is none"),
        ("+0 > S 0:0(0) <mss 1460,sackOK>", 1, "end", "fill no whole words"),
        ("+0 > S 0:0(0) <foo>", 1, "foo>", "option is not supported"),
        ("+0 > S 0:0(0) <FO 123>", 1, "123>", "pairs of hexadecimal"),
        ("+0 > S 0:0(0) <md5 valid>", 1, "md5", "keys for MD5"),
        ("+0 > .8 0:0(0)", 1, ".8", "a flag is none"),
        ("// a comment\n/* and\n another */ +0 > udp (3)", 3, "udp", "kind of packet"),
        ("+0 < icmp unheard", 1, "unheard", "ICMP type or code"),
        ("+0 %{ assert x", 1, "assert", "is missing"),
        ("--udp_encapsulation=tcp\n", 1, "udp_encapsulation", "option or its value"),
        ("--mtu=67\n", 1, "mtu=67", "from 68"),
        ("+0 < ...(1) . 1", 1, "(1)", "a number is missing"),
        ("+0 < . ...(1) ack 1 win 1", 1, "(1)", "first sequence number"),
        ("+0 poll([{fd=3], 1, 0) = 0", 1, "]", "`}` is missing"),
        ("#ifdef A\n+0 close(3) = 0", 1, "#ifdef", "#endif"),
        ("* close(3) = 0", 1, "end", "time of this event"),
        ("2 close(3) = 0\n1 close(3) = 0", 2, "end", "goes back"),
        ("+ close(3) = 0", 1, "close(3)", "a time is missing"),
        ("+0 `true", 1, "true", "is missing"),
        ("+0...1 > . 1:1(0) ack 1", 1, "end", "only a call can last"),
        ("+0 > . 1:1(0) ack 99999999999", 1, "99999999999", "does not fit"),
        ("`true`\n`false`\n+0 close(3) = 0", 3, "+0", "the last thing"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.near.starts_with(near), "{text}: {error}");
        assert!(error.what.contains(what), "{text}: {error}");
    }
}

#[test]
fn no_cut_of_a_script_makes_the_parser_panic_or_stall() {
    for (path, _) in scripts() {
        let text = std::fs::read_to_string(path).unwrap();
        for end in 0..text.len() {
            if let Some(cut) = text.get(..end) {
                let _ = parse(cut);
            }
        }
    }
}
