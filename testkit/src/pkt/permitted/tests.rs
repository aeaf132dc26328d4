//! Each rule permits what it is for, and nothing beside it.

use super::super::parse;
use super::*;

const OPEN: &str = "`./defaults.sh`
0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 < S 0:0(0) win 1000 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0 < . 1:1(0) ack 1 win 1000
";

fn why(rest: &str, failed: &str, what: &str) -> Option<&'static str> {
    let text = format!("{OPEN}{rest}");
    let script = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let line = 1 + text.lines().position(|line| line.contains(failed)).unwrap();
    let failure = Failure { line, what: what.to_owned() };
    permitted(&script, &failure).map(|difference| difference.what)
}

#[test]
fn every_difference_has_its_reason() {
    for Difference { profile, what, why, .. } in DIFFERENCES {
        assert!(*profile != Profile::Own && !what.is_empty());
        let cites = ["RFC ", "on Linux", "docs/", "FreeBSD does"];
        assert!(cites.iter().any(|it| why.contains(it)), "{what}: {why}");
    }
}

#[test]
fn a_failure_is_permitted_by_its_cause_alone() {
    let ack = |to: u32| {
        format!(
            "+0 > P. 1:10001(10000) ack 1\n+0 < . 1:1(0) ack {to} win 1000\n\
             +0 > P. 10001:12001(2000) ack 1\n"
        )
    };
    let less = "sent P. 10001:11001(1000) ack 1, expected P. 10001:12001(2000) ack 1";
    let more = "sent P. 10001:13001(3000) ack 1, expected P. 10001:12001(2000) ack 1";
    assert!(why(&ack(10_001), "12001", less).unwrap().contains("ten segments"));
    assert_eq!(why(&ack(10_001), "12001", more), None);
    assert_eq!(why(&ack(8001), "12001", less), None);
    // The line before the cause is no consequence of it.
    assert_eq!(why(&ack(10_001), "mss 1460", less), None);
    let code = |text: &str| format!("+0 %{{ assert {text} }}%\n");
    let holds = |is: &str| format!("`assert tcpi_snd_ssthresh == 7` does not hold: {is}");
    let threshold = code("tcpi_snd_ssthresh == 7");
    let found = why(&threshold, "assert", &holds("tcpi_snd_ssthresh is 2"));
    assert!(found.unwrap().contains("0.7"));
    assert_eq!(why(&threshold, "assert", &holds("tcpi_snd_ssthresh is 8")), None);
    assert!(why(&code("tcpi_ca_state == TCP_CA_CWR"), "assert", "?").unwrap().contains("mark"));
    assert_eq!(why(&code("tcpi_unacked == 7"), "assert", "?"), None);
    let write = "+0 write(3, ..., 9000) = 4000\n";
    assert!(why(write, "write", "write gave Ok(5000)").unwrap().contains("structures"));
    assert_eq!(why(write, "write", "write has not returned"), None);
    assert_eq!(why("+0 write(3, ..., 9000) = -1 EPIPE (Broken pipe)\n", "write", "?"), None);
    assert_eq!(why(write, "write", "the option X is not supported"), None);
    let again = "+0 < P. 1:101(100) ack 1 win 9\n+0 < F. 1:101(100) ack 1 win 9\n\
                 +0 > . 1:1(0) ack 102\n";
    assert!(why(again, "ack 102", "?").unwrap().contains("with a FIN"));
    assert_eq!(why(&again.replace("F. 1:101", "F. 101:201"), "ack 102", "?"), None);
    let window = "+0 < P. 1:101(100) ack 1 win 9\n+0 > . 1:1(0) ack 101 win 500\n";
    let line = |ack: u32, win: u32| format!(". 1:1(0) ack {ack} win {win}");
    let other = |ack| format!("sent {}, expected {}", line(ack, 600), line(101, 500));
    assert!(why(window, "ack 101", &other(101)).unwrap().contains("window"));
    assert_eq!(why(window, "ack 101", &other(1)), None);
    let large = |size: u32| {
        format!(
            "+0 setsockopt(3, SOL_SOCKET, SO_RCVBUF, [20000], 4) = 0\n\
             +0 < P. 1:{}({size}) ack 1 win 9\n+0 > . 1:1(0) ack 9 win 500\n",
            size + 1
        )
    };
    let part = "sent . 1:1(0) ack 5 win 0, expected . 1:1(0) ack 9 win 0";
    assert!(why(&large(60_000), "ack 9", part).unwrap().contains("taken whole"));
    assert_eq!(why(&large(30_000), "ack 9", part), None);
    let beyond = "+0 < . 1:1(0) ack 9000 win 9\n+0 > . 1:1(0) ack 1\n";
    assert!(why(beyond, "> . 1:1", "?").unwrap().contains("never sent"));
    // What was reported before, by blocks or by duplicates.
    let late = |ack: u32, from: u32| {
        format!(
            "+0 > P. 1:4001(4000) ack 1\n+0 < . 1:1(0) ack 1 win 9 <sack {from}:3001,nop,nop>\n\
             +0 < . 1:1(0) ack {ack} win 9\n+0 > P. 4001:5001(1000) ack 1\n"
        )
    };
    let early = "sent at 225ms; expected at 240ms ± 5ms";
    assert!(why(&late(3001, 2001), "5001", early).unwrap().contains("reported before"));
    assert_eq!(why(&late(2001, 2001), "5001", early), None);
    let timer = "+0 > P. 1:4001(4000) ack 1\n+0 < . 1:1(0) ack 1 win 9 <sack 3001:4001,nop,nop>\n\
                 +0 > . 1:1001(1000) ack 1\n";
    assert!(why(timer, "1:1001", early).unwrap().contains("250 Hz"));
    assert_eq!(why(timer, "1:1001", "sent at 220ms; expected at 240ms ± 5ms"), None);
    assert_eq!(why(timer, "1:1001", "sent at 1ms; expected at 1s ± 5ms"), None);
    let again = "+0 > P. 1:4001(4000) ack 1\n+0 > . 1:1001(1000) ack 1\n\
                 +0 < . 1:1(0) ack 1001 win 9 <sack 3001:4001,nop,nop>\n\
                 +0 > . 1001:3001(2000) ack 1\n";
    let one = "sent . 1001:2001(1000) ack 1, expected . 1001:3001(2000) ack 1";
    assert!(why(again, "1001:3001", one).unwrap().contains("retransmission"));
    assert_eq!(why(&again.replace("ack 1001 win", "ack 1 win"), "1001:3001", one), None);
}

#[test]
fn what_scripts_set_is_permitted_where_they_set_it() {
    let with = |command: &str, rest: &str| format!("+0 `{command}`\n{rest}");
    let connect = "+0 connect(4, ..., ...) = -1 EINPROGRESS\n";
    let none = "connect gave Err(Errno(\"EADDRNOTAVAIL\")), expected EINPROGRESS";
    let set = with("sysctl net.ipv4.tcp_tw_reuse_delay=1", connect);
    assert!(why(&set, "connect", none).unwrap().contains("millisecond"));
    assert_eq!(why(connect, "connect", none), None);
    assert_eq!(why(&set, "connect", "connect gave Ok(0), expected EINPROGRESS"), None);
    let write = "+3 write(4, ..., 24) = 24\n";
    let late = "write gave Err(Errno(\"ETIMEDOUT\")), expected 24";
    let cut = with("tc qdisc add dev tun0 root pfifo limit 0", write);
    assert!(why(&cut, "write", late).unwrap().contains("own queue"));
    assert_eq!(why(write, "write", late), None);
    let probe = "+0 > . 1:987(986) ack 1\n";
    let less = "sent . 1:601(600) ack 1, expected . 1:987(986) ack 1";
    let more = "sent . 1:1001(1000) ack 1, expected . 1:987(986) ack 1";
    let probing = with("sysctl net.ipv4.tcp_mtu_probing=2", probe);
    assert!(why(&probing, "1:987", less).unwrap().contains("probes for larger"));
    assert_eq!(why(&probing, "1:987", more), None);
    assert_eq!(why(probe, "1:987", less), None);
    let urgent = "+0 < U. 1:101(100) ack 1 win 9 urg 100\n+0 read(4, ..., 9) = 0\n";
    assert!(why(urgent, "read", "read gave Ok(1), expected 0").unwrap().contains("urgent"));
    assert_eq!(why(&urgent.replace("U.", "."), "read", "read gave Ok(1), expected 0"), None);
    assert_eq!(why(&urgent.replace("= 0", "= 5"), "read", "read gave Ok(1), expected 5"), None);
    let beyond = "+0 > . 1:1(0) ack 1 win 500\n+0 < . 1:601(600) ack 1 win 9\n\
                  +0 %{ assert tcpi_bytes_received == 600 }%\n";
    let part = "`assert tcpi_bytes_received == 600` does not hold: tcpi_bytes_received is 500";
    assert!(why(beyond, "assert", part).unwrap().contains("taken whole"));
    assert_eq!(why(&beyond.replace("win 500", "win 600"), "assert", part), None);
}

#[test]
fn a_rising_rtt_and_a_pacing_queue_are_permitted_by_their_cause_alone() {
    let assert = "+0 %{ assert tcpi_snd_cwnd == 40 }%\n";
    let less = "`assert tcpi_snd_cwnd == 40` does not hold: tcpi_snd_cwnd is 34";
    let acks = |n: u32, gap: &str| {
        let acks = (1..=n).map(|i| format!("+{gap} < . 1:1(0) ack {}001 win 9\n", 2 * i));
        format!("+0 write(4, ..., 40000) = 40000\n{}{assert}", acks.collect::<String>())
    };
    assert!(why(&acks(8, ".01"), "assert", less).unwrap().contains("RTT rises"));
    assert_eq!(why(&acks(7, ".01"), "assert", less), None);
    assert_eq!(why(&acks(8, ".002"), "assert", less), None);
    let more = less.replace("is 34", "is 44");
    assert_eq!(why(&acks(8, ".01"), "assert", &more), None);
    let leaves = "+.1 > . 1:1001(1000) ack 1\n";
    let paced = format!("+0 `tc qdisc replace dev tun0 root fq`\n{leaves}");
    let early = "sent at 308ms; expected at 315ms ± 4ms";
    assert!(why(&paced, "1:1001", early).unwrap().contains("paced"));
    assert_eq!(why(leaves, "1:1001", early), None);
    assert_eq!(why(&paced, "1:1001", "nothing was sent by 319ms; expected 1:1001"), None);
    let whole = "+0 > . 1:1(0) ack 1 win 500\n+0 < . 1:601(600) ack 1 win 9\n+0 > R 1:1(0)\n";
    let acked = "sent . 1:1(0) ack 601 win 0, expected R 1:1(0)";
    assert!(why(whole, "> R", acked).unwrap().contains("larger than the window"));
    assert_eq!(why(&whole.replace("win 500", "win 600"), "> R", acked), None);
}

#[test]
fn what_newer_scripts_of_linux_require_is_permitted_by_its_cause_alone() {
    let cut = "+0 `tc qdisc add dev tun0 root pfifo limit 0`\n";
    let probes = "+0 %{ assert tcpi_probes == 6 }%\n";
    let none = "`assert tcpi_probes == 6` does not hold: tcpi_probes is 0";
    assert!(why(&format!("{cut}{probes}"), "assert", none).unwrap().contains("twice a second"));
    assert_eq!(why(probes, "assert", none), None);
    let small = "+0 setsockopt(3, SOL_SOCKET, SO_RCVBUF, [1000], 4) = 0\n";
    let full = "+0 < . 1:801(800) ack 1 win 9\n+0 < . 801:1501(700) ack 1 win 9\n\
                +0 > . 1:1(0) ack 1501\n";
    let less = "sent . 1:1(0) ack 1001 win 0, expected . 1:1(0) ack 1501";
    let text = format!("{small}{full}");
    assert!(why(&text, "ack 1501", less).unwrap().contains("SO_RCVBUF"));
    assert_eq!(why(&text.replace("[1000]", "[1600]"), "ack 1501", less), None);
    let pieces = "+0 sendmsg(3, {msg_name(...)=..., msg_iov(1)=[{..., 18}], msg_flags=0}, \
                  MSG_ZEROCOPY) = 18\n+0 > P. 1:18(17) ack 1\n";
    let whole = "sent P. 1:19(18) ack 1, expected P. 1:18(17) ack 1";
    assert!(why(pieces, "1:18", whole).unwrap().contains("17 pieces"));
    assert_eq!(why(&pieces.replace("MSG_ZEROCOPY", "0"), "1:18", whole), None);
    let again = "+0 < S 0:0(0) win 1000 <mss 1000>\n+0 < R 2:2(0) win 9\n+0 > . 1:1(0) ack 1\n";
    let silent = "nothing was sent by 4ms; expected . 1:1(0) ack 1";
    assert!(why(again, "> . 1:1", silent).unwrap().contains("half-open"));
    let open = again.replace("+0 < R", "+0 < . 1:1(0) ack 1 win 9\n+0 < R");
    assert_eq!(why(&open, "> . 1:1", silent), None);
    let jumbo = "+0 < S 0:0(0) win 9 <mss 8940>\n+0 %{ assert tcpi_snd_mss == 8928 }%\n";
    let less = "`assert tcpi_snd_mss == 8928` does not hold: tcpi_snd_mss is 1428";
    assert!(why(jumbo, "assert", less).unwrap().contains("jumbo"));
    assert_eq!(why(&jumbo.replace("mss 8940", "mss 1440"), "assert", less), None);
    assert_eq!(why(&format!("+0 > . 1:9(8) ack 1\n{jumbo}"), "assert", less), None);
    assert_eq!(why(jumbo, "assert", &less.replace("is 1428", "is 8940")), None);
}

/// What a failure of a script of FreeBSD's is permitted for.
fn freebsds(rest: &str, failed: &str, what: &str) -> Option<&'static str> {
    let text = format!("0 `sysctl -w net.inet.tcp.ecn.enable=2`\n{rest}");
    let script = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    let line = 1 + text.lines().position(|line| line.contains(failed)).unwrap();
    let failure = Failure { line, what: what.to_owned() };
    permitted(&script, &failure).map(|difference| difference.what)
}

#[test]
fn a_listener_may_drop_what_freebsd_takes_for_a_syn() {
    let of = freebsds;
    let listener = "+0 listen(3, 1) = 0\n+0 < SF 7:7(0) win 9 <mss 1460>\n\
                    +0 > S. 0:0(0) ack 8 <mss 1460>\n";
    let silent = "nothing was sent by 4ms; expected S. 0:0(0) ack 8";
    assert!(of(listener, "ack 8", silent).unwrap().contains("a listener takes"));
    assert_eq!(of(listener, "ack 8", "sent . 1:1(0) ack 8, expected S. 0:0(0) ack 8"), None);
    assert_eq!(of(&listener.replace("listen(3, 1)", "close(3)"), "ack 8", silent), None);
    assert_eq!(of(&listener.replace("SF", "S"), "ack 8", silent), None);
}

#[test]
fn freebsds_ways_are_permitted_by_their_cause_alone() {
    let of = freebsds;
    let close = "+0 < . 1:101(100) ack 1 win 9\n+0 close(4) = 0\n+0 > F. 1:1(0) ack 101\n";
    let reset = "sent R. 1:1(0) ack 101, expected F. 1:1(0) ack 101";
    assert!(of(close, "> F.", reset).unwrap().contains("unread"));
    let read = close.replace("+0 close", "+0 read(4, ..., 100) = 100\n+0 close");
    assert_eq!(of(&read, "> F.", reset), None);
    let syn = "+0 > S 0:0(0) <mss 1460>\n+0 < F. 0:0(0) ack 0 win 9\n+0 > R 0:0(0)\n\
               +.9 > S 0:0(0) win 65535 <mss 1460>\n+0 `sysctl net.inet.tcp.rexmit_initial=1000`\n";
    let early = "sent at 100ms; expected at 1s ± 5ms";
    assert!(of(syn, "win 65535", early).unwrap().contains("another connection"));
    assert_eq!(of(&syn.replace("> R 0:0(0)", "> . 1:1(0) ack 1"), "win 65535", "?"), None);
    let old = "+0 > S 0:0(0) <mss 1460>\n+3 > S 0:0(0) win 65535 <mss 1460>\n";
    let early = "sent at 1s; expected at 3s ± 5ms";
    assert!(of(old, "win 65535", early).unwrap().contains("three seconds"));
    let tiny = "+0 > S 0:0(0) <mss 32>\n";
    let more = "sent S 0:0(0) [Mss(512)], expected S 0:0(0) [Mss(32)]";
    assert!(of(tiny, "mss 32", more).unwrap().contains("72 bytes"));
    let other = "sent S 0:0(0) [Mss(1460)], expected S 0:0(0) [Mss(32)]";
    assert_eq!(of(tiny, "mss 32", other), None);
    assert_eq!(of(&tiny.replace("32", "900"), "mss 900", more), None);
    let lost = "+0 > . 1:3001(3000) ack 1\n+0 < . 1:1(0) ack 1 win 9 <sack 1001:2001,nop,nop>\n\
                +0 > . 3001:4001(1000) ack 1\n";
    let again = "sent . 1:1001(1000) ack 1, expected . 3001:4001(1000) ack 1";
    assert!(of(lost, "3001:4001", again).unwrap().contains("three are reported"));
    assert_eq!(of(&lost.replace(" <sack 1001:2001,nop,nop>", ""), "3001:4001", again), None);
    let later = "sent . 4001:5001(1000) ack 1, expected . 3001:4001(1000) ack 1";
    assert_eq!(of(lost, "3001:4001", later), None);
    let twice = "+0 > SEW 0:0(0) <mss 1460>\n+1 > SEW 0:0(0) win 9 <mss 1460>\n";
    let bare = "sent S 0:0(0) [Mss(1460)], expected SEW 0:0(0) win 9 [Mss(1460)]";
    assert!(of(twice, "win 9", bare).unwrap().contains("repeated with ECN"));
    assert_eq!(of(&twice.replace("> SEW 0:0(0) <", "> S 0:0(0) <"), "win 9", bare), None);
    let both = "+0 > S 0:0(0) <mss 1460>\n+0 < SEW 0:0(0) win 9 <mss 1460>\n\
                +0 > SE. 0:0(0) ack 1 <mss 1460>\n";
    assert!(of(both, "ack 1", "?").unwrap().contains("has not asked"));
    assert_eq!(of(&both.replace("< SEW", "< S"), "ack 1", "?"), None);
    assert_eq!(of(&both.replace("> S 0", "> SEW 0"), "ack 1", "?"), None);
    let noopt = "+0 setsockopt(3, IPPROTO_TCP, TCP_NOOPT, [1], 4) = 0\n+0 > S 0:0(0) win 9\n";
    let sized = "sent S 0:0(0) win 9 [Mss(1460)], expected S 0:0(0) win 9";
    assert!(of(noopt, "win 9", sized).unwrap().contains("TCP_NOOPT"));
    assert_eq!(of(noopt, "win 9", &sized.replace("Mss", "Wscale")), None);
    assert_eq!(of("+0 > S 0:0(0) win 9\n", "win 9", sized), None);
    let bare = "0 `sysctl -w net.inet.tcp.rexmit_drop_options=1`\n+0 > S 0:0(0) <mss 1460>\n\
                +1 > S 0:0(0) <mss 1460>\n+2.2 > S 0:0(0) <mss 1460>\n\
                * > S 0:0(0) win 9 <mss 1460>\n";
    let same = "sent S 0:0(0) win 9 [Mss(1460), Sack], expected S 0:0(0) win 9 [Mss(1460)]";
    assert!(of(bare, "win 9", same).unwrap().contains("rexmit_drop_options"));
    assert_eq!(of(&bare.replace("options=1", "options=0"), "win 9", same), None);
    assert_eq!(of(&bare.replace("+1 > S 0:0(0) <mss 1460>\n", ""), "win 9", same), None);
    let cross = "+0 > S 0:0(0) <mss 1460>\n+0 < SF 0:0(0) win 9 <mss 1460>\n\
                 +0 > S. 0:0(0) ack 2 <mss 1460>\n";
    let sent = "sent S. 0:0(0) ack 1, expected S. 0:0(0) ack 2";
    assert!(of(cross, "ack 2", sent).unwrap().contains("cross"));
    assert_eq!(of(&cross.replace("SF", "S"), "ack 2", sent), None);
    let icmp = |code: &str| {
        format!(
            "+0 > S 0:0(0) <mss 1460>\n+0 < icmp unreachable {code} [0:0(0)]\n\
             +0 getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0\n"
        )
    };
    let told = "SO_ERROR is 113, expected [0]";
    assert!(of(&icmp("host_unreachable"), "SO_ERROR", told).is_some());
    assert_eq!(of(&icmp("port_unreachable"), "SO_ERROR", told), None);
}
