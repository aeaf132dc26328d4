//! Every order of five segments and every overlap with three held pieces, as FreeBSD's
//! `rcv-data-segments` tries them: what is read, acknowledged and reported, to the end of the
//! connection. The scripts are made here from a model of RFC 9293 section 3.10.7.4 and RFC 2018
//! section 4.

use std::fmt::Write as _;

use floodwall_testkit::pkt::{Profile, parse};

use super::in_memory;

/// The receive buffer that the suite's machine ends up with: 65,536 bytes in whole segments.
const fn buffer(is_ipv6: bool) -> u32 {
    if is_ipv6 { 66_240 } else { 65_700 }
}

/// A receiver that reports the newest block first.
struct Receiver {
    next: u32,
    blocks: Vec<(u32, u32)>,
    /// One segment in order is not acknowledged yet.
    owes: bool,
}

impl Receiver {
    /// Takes what may join with all it touches; whether it is acknowledged at once.
    fn take(&mut self, mut piece: (u32, u32)) -> bool {
        let (old, held) = (self.next, !self.blocks.is_empty());
        while let Some(at) = self.blocks.iter().position(|it| it.0 <= piece.1 && piece.0 <= it.1) {
            let it = self.blocks.remove(at);
            piece = (piece.0.min(it.0), piece.1.max(it.1));
        }
        if piece.0 > self.next {
            self.blocks.insert(0, piece);
        } else {
            self.next = self.next.max(piece.1);
        }
        self.owes = self.next > old && !held && !self.owes;
        !self.owes
    }

    /// The acknowledgment, with what is unread of `room` bytes taken off the window.
    fn ack(&self, room: u32) -> String {
        let mut text = format!("> . 1:1(0) ack {} win {}", self.next, self.window(room));
        if !self.blocks.is_empty() {
            let blocks = self.blocks.iter().map(|(a, b)| format!(" {a}:{b}"));
            write!(text, " <nop,nop,sack{}>", blocks.collect::<String>()).unwrap();
        }
        text
    }

    fn window(&self, room: u32) -> u32 {
        (room - (self.next - 1)).min(65_535)
    }
}

/// The script in which these pieces arrive one after the other, the last of them with all text.
fn script(pieces: &[(u32, u32)], is_ipv6: bool) -> String {
    let (version, mss) = if is_ipv6 { ("ipv6", 1440) } else { ("ipv4", 1460) };
    let mut text = format!(
        "--ip_version={version}\n--tolerance_usecs=10000\n\
         0 `sysctl -w net.inet.tcp.sack.enable=1`\n\
         +0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
         +0 setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0\n\
         +0 bind(3, ..., ...) = 0\n+0 listen(3, 1) = 0\n\
         +0 < S 0:0(0) win 65535 <mss {mss},sackOK,eol,eol>\n\
         +0 > S. 0:0(0) ack 1 win 65535 <mss {mss},sackOK,eol,eol>\n\
         +0.01 < . 1:1(0) ack 1 win 65535\n+0 accept(3, ..., ...) = 4\n+0 close(3) = 0\n"
    );
    let mut receiver = Receiver { next: 1, blocks: vec![], owes: false };
    for &(start, end) in pieces {
        writeln!(text, "+0 < . {start}:{end}({}) ack 1 win 65535", end - start).unwrap();
        if receiver.take((start, end)) {
            writeln!(text, "+0 {}", receiver.ack(buffer(is_ipv6))).unwrap();
        }
        if receiver.next > 1 {
            let unread = receiver.next - 1;
            writeln!(text, "+0 recv(4, ..., 1024, MSG_PEEK) = {unread}").unwrap();
        }
    }
    assert!(receiver.blocks.is_empty(), "{pieces:?}");
    if receiver.owes {
        writeln!(text, "+0.1 {}", receiver.ack(buffer(is_ipv6))).unwrap();
    }
    let (unread, end) = (receiver.next - 1, receiver.next);
    let after = end + 1;
    write!(
        text,
        "+0 recv(4, ..., 1024, 0) = {unread}\n\
         +0.1 < F. {end}:{end}(0) ack 1 win 65535\n+0 > . 1:1(0) ack {after} win 65535\n\
         +0 recv(4, ..., 1024, 0) = 0\n+0 close(4) = 0\n\
         +0 > F. 1:1(0) ack {after} win 65535\n+0.01 < . {after}:{after}(0) ack 2 win 65535\n"
    )
    .unwrap();
    text
}

/// All orders of five segments of doubling length.
fn orders() -> Vec<Vec<(u32, u32)>> {
    let segments = [(1, 2), (2, 4), (4, 8), (8, 16), (16, 32)];
    let mut orders = vec![vec![]];
    for _ in segments {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<(u32, u32)>| {
                let rest = segments.into_iter().filter(|it| !order.contains(it));
                rest.map(|it| [&order[..], &[it]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    orders
}

/// One more segment upon 1 to 100 in order and three pieces ahead, from and to every edge and
/// inside of every piece and hole; then all of it.
fn overlaps() -> Vec<Vec<(u32, u32)>> {
    let starts = (50..=650).step_by(50);
    let ends = [75, 100, 150, 200, 275, 300, 350, 400, 475, 500, 550, 600, 675, 700];
    let pairs = starts.flat_map(|start| ends.map(|end| (start, end)));
    let held = [(1, 100), (200, 300), (400, 500), (600, 700)];
    pairs
        .filter(|(start, end)| start < end)
        .map(|it| [&held[..], &[it, (1, 800)]].concat())
        .collect()
}

#[test]
fn every_order_and_every_overlap_of_segments_is_read_acknowledged_and_reported() {
    let all = [orders(), overlaps()].concat();
    assert_eq!(all.len(), 120 + 95);
    let mut failures = vec![];
    for pieces in all {
        for is_ipv6 in [false, true] {
            let text = script(&pieces, is_ipv6);
            let parsed = parse(&text).unwrap();
            assert_eq!(parsed.profile(), Profile::FreeBsd);
            if let Err(failure) = in_memory(&parsed) {
                failures.push(format!("{pieces:?}, IPv6: {is_ipv6}: {failure}"));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} fail: {}",
        failures.len(),
        failures[..9.min(failures.len())].join("\n")
    );
}
