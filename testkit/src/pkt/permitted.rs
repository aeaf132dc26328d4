//! Where scripts of others fail for what Floodwall does on purpose.
//!
//! Called by `cargo xtask conformance`. Invariant: a failure is permitted only by a difference of
//! the script's own profile, with a cause that stands in the script at or before the line that
//! failed. What is not done yet is not here: it is refused with the token that requires it.

mod before;

use std::time::Duration;

use before::{Before, acked, has_sack, is_syn, place, says, writes};

use super::profile::Profile;
use super::runner::Failure;
use super::script::{ACK, CWR, ECE, FIN, Opt, RST, SYN, Script, Segment, SocketCall, URG};

/// Codes of ICMP errors that prohibit a way.
const PROHIBITS: &[&str] = &[
    "net_prohibited",
    "host_prohibited",
    "comm_prohibited",
    "packet_filtered",
    "admin_prohibited",
    "precedence_violation",
    "precedence_cutoff",
];

/// What scripts require that Floodwall does otherwise on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The system that they are written for.
    pub profile: Profile,
    /// What they require.
    pub what: &'static str,
    /// What Floodwall does, and why.
    pub why: &'static str,
    /// Whether a failure is due to this.
    is: fn(&Before<'_>) -> bool,
}

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        profile: Profile::Linux,
        what: "MSG_EOR ends a segment",
        why: "TCP has no record boundaries (RFC 9293 section 3.9.1)",
        is: |it| {
            let ends = |call: &SocketCall| call.args.iter().any(|arg| says(arg, "MSG_EOR"));
            it.sent().is_some() && it.calls().any(ends)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "one ACK of ten segments opens the window by ten in slow start",
        why: "eight at most where nothing is paced (RFC 9406 section 4.2); a smaller burst follows",
        is: |it| it.is_smaller() && it.acked_at_once() > 8,
    },
    Difference {
        profile: Profile::Linux,
        what: "slow start goes on while the RTT rises, up to what HyStart samples",
        why: "it slows down to a quarter once a round is slower than the one before (RFC 9406 \
              section 4.2)",
        is: |it| it.found_less("tcpi_snd_cwnd") && it.rtt_rises(),
    },
    Difference {
        profile: Profile::Linux,
        what: "what an ACK lets leave is paced by the queue (fq)",
        why: "nothing is paced: it leaves with the ACK (RFC 5681 section 3.1)",
        is: |it| {
            let asks = it.script_runs("root fq");
            asks && it.is_early_by().is_some() && it.outbound_wanted().is_some_and(|s| s.len > 0)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "an ACK of segments that were reported before opens the window by one",
        why: "it opens it by what it acknowledges (RFC 3465)",
        is: |it| it.is_early_by().is_some() && it.acks_what_was_reported(),
    },
    Difference {
        profile: Profile::Linux,
        what: "in a recovery one segment more leaves on the ACK of a retransmission",
        why: "what left before it and is not reported is lost by then: the RTT is that of the \
              segment sent last (RFC 8985 section 6.2); a new loss takes the one (RFC 9937)",
        is: |it| it.sends_less() == Some(1) && it.acks_a_retransmission(),
    },
    Difference {
        profile: Profile::Linux,
        what: "a retransmission by the reordering timer waits for two ticks more, at 250 Hz",
        why: "it waits for a quarter of the shortest RTT (RFC 8985 section 6.2)",
        is: |it| {
            let tick = Duration::from_millis(16);
            it.is_early_by().is_some_and(|by| by <= tick) && it.last_inbound(has_sack)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "a loss leaves a threshold of 0.7 windows, not of what was in flight",
        why: "of 0.7 of what was in flight (RFC 9438 section 4.6)",
        is: |it| it.found_less("tcpi_snd_ssthresh"),
    },
    Difference {
        profile: Profile::Linux,
        what: "a mark that is echoed leads to a state of its own, TCP_CA_CWR, with PRR",
        why: "the window is reduced at once (RFC 3168 section 6.1.2)",
        is: |it| {
            let marked = |segment: &Segment| segment.has(ECE) && !segment.has(SYN);
            it.code().is_some_and(|code| code.contains("TCP_CA_CWR"))
                || it.is_about_sending(&["snd_cwnd"]) && it.inbound().any(marked)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "an acknowledgment of what was never sent is dropped in silence",
        why: "it is answered (RFC 9293 section 3.10.7.4)",
        is: |it| it.outbound_wanted().is_some() && it.acks_beyond(),
    },
    Difference {
        profile: Profile::Linux,
        what: "data that comes again with a FIN is not reported as a duplicate",
        why: "it is (RFC 2883 section 4)",
        is: |it| {
            let again = |s: &Segment| s.has(FIN) && s.len > 0 && it.is_repeated(s);
            it.outbound_wanted().is_some_and(|s| !has_sack(s)) && it.last_inbound(again)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "the timestamp of a SYN-ACK ticks exactly with those behind it",
        why: "its low bits carry what a cookie must (docs/design/syn-cookie.md): up to 63 ms off",
        is: |it| it.failure.what.contains("ticks off"),
    },
    Difference {
        profile: Profile::Linux,
        what: "writes stop at a number of bytes that counts Linux's own structures",
        why: "Floodwall counts its own (docs/threats.md); RFC 9293 section 3.9.1.2 leaves it open, \
              and both take all in the end",
        is: |it| {
            let other = it.failure.what.contains(" gave Ok(");
            other && it.call().is_some_and(|call| writes(call) && call.result > 0)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "how long a full send buffer held the sender back, by Linux's own structures",
        why: "Floodwall counts its own (docs/threats.md), so that a small buffer holds less",
        is: |it| it.failure.what.contains("tcpi_sndbuf_limited is "),
    },
    Difference {
        profile: Profile::Linux,
        what: "a receive buffer begins at `tcp_rmem[1]`, and stays there until `accept`",
        why: "it follows what arrives, within the listener's share (docs/threats.md)",
        is: |it| it.failure.what.contains("SK_MEMINFO_RCVBUF is "),
    },
    Difference {
        profile: Profile::Linux,
        what: "what MSG_MORE holds back leaves with the next ACK",
        why: "it waits for the program's next call, or 200 ms, as with TCP_CORK on Linux (tcp(7)): \
              a header does not leave before its body",
        is: |it| {
            let more = |call: &SocketCall| call.args.iter().any(|arg| says(arg, "MSG_MORE"));
            let waits = it.failure.what.starts_with("nothing was sent");
            waits && it.calls().last().is_some_and(more) && it.last_inbound(|s| s.has(ACK))
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "a window shrinks by what Linux's own structures of unread data take",
        why: "Floodwall's counts its own; it is never taken back (RFC 9293 section 3.8.6)",
        is: |it| it.last_inbound(|s| s.len > 0) && it.differs_by_window_alone(),
    },
    Difference {
        profile: Profile::Linux,
        what: "a segment that ends far beyond the window is taken whole while nothing waits",
        why: "what is beyond it is cut off (RFC 9293 section 3.10.7.4)",
        is: |it| {
            let room = it.receive_buffer();
            let less = it.sent().is_some_and(|(sent, wanted)| acked(sent) < acked(wanted));
            let told = it.last_outbound().and_then(|s| s.win).map_or(u32::MAX, u32::from);
            less && it.last_inbound(|s| i64::from(s.len) > room)
                || it.found_less("tcpi_bytes_received") && it.last_inbound(|s| s.len > told)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "a segment larger than the window is taken and not acknowledged at once",
        why: "it is, as any two segments (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2)",
        is: |it| {
            let told = it.last_outbound().and_then(|s| s.win).map_or(u32::MAX, u32::from);
            let acks = it.sent().is_some_and(|(sent, _)| sent.starts_with(". "));
            acks && it.inbound().any(|s| s.len > told)
                && it.outbound_wanted().is_some_and(|s| s.has(RST))
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "an urgent byte is not in the stream",
        why: "it is, in its place (RFC 6093 section 6): nothing is taken out",
        is: |it| it.call().is_some() && it.gave_more() && it.inbound().any(|s| s.has(URG)),
    },
    Difference {
        profile: Profile::Linux,
        what: "a port in TIME-WAIT is used again after a millisecond (tcp_tw_reuse_delay)",
        why: "after a second (RFC 6191), as on Linux where nothing is set; there is no setting for \
              less",
        is: |it| {
            let fails = it.failure.what.contains("EADDRNOTAVAIL");
            fails && it.script_runs("tcp_tw_reuse_delay") && it.called("connect")
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "what the sender's own queue drops puts the user timeout off",
        why: "it is lost as any other segment: the timeout is kept (RFC 5482 section 3)",
        is: |it| {
            let ends = it.failure.what.contains("ETIMEDOUT");
            ends && it.script_runs("pfifo limit 0") && it.called("write")
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "what the sender's own queue drops is asked about twice a second, as a window probe",
        why: "it is lost as any other segment: the retransmission timer sends it again (RFC 6298)",
        is: |it| {
            let counts = it.failure.what.contains("tcpi_probes is ");
            counts && it.script_runs("pfifo limit 0")
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "a receive buffer takes up to twice the bytes that SO_RCVBUF names",
        why: "it takes as many: structures are counted apart (docs/threats.md)",
        is: |it| {
            let less = it.sent().is_some_and(|(sent, wanted)| acked(sent) < acked(wanted));
            let bound = it.receive_buffer() / 2;
            let exceeds = |s: &Segment| i64::from(s.start.saturating_add(s.len)) > bound;
            less && it.last_inbound(|s| i64::from(s.len) <= bound && exceeds(s))
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "without a copy, a segment ends after 17 pieces of memory",
        why: "what is sent is copied, as on Linux where it must be: its pieces do not show",
        is: |it| {
            let in_pieces = |call: &SocketCall| {
                let is_uncopied = call.args.iter().any(|arg| says(arg, "MSG_ZEROCOPY"));
                call.name == "sendmsg" && is_uncopied && call.result > 17
            };
            it.sent().is_some() && it.calls().last().is_some_and(in_pieces)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "tcpi_snd_mss follows a link of jumbo frames before any data leaves",
        why: "the path is looked up with the first segment, which has the size (RFC 9293 section \
              3.7.1)",
        is: |it| {
            let jumbo =
                it.inbound().any(|s| s.options.iter().any(|o| matches!(o, Opt::Mss(1461..))));
            jumbo && !it.outbound().any(|s| s.len > 0) && it.found_less("tcpi_snd_mss")
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "a reset in the window of a half-open connection is challenged",
        why: "an unproven address is not answered twice (docs/design/syn-cookie.md)",
        is: resets_half_open,
    },
    Difference {
        profile: Profile::Linux,
        what: "with tcp_mtu_probing=2 each connection probes for larger segments from its start",
        why: "only where large ones are lost (RFC 4821 section 7.7), as Linux with 1: a path's MTU \
              is otherwise its link's, and what routers report",
        is: |it| {
            let is_set = it.script_runs("tcp_mtu_probing=2");
            is_set && it.outbound_wanted().is_some_and(|s| s.len > 0) && it.sends_less().is_some()
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "with insecure_rst or insecure_syn, any reset or SYN in the window ends a connection",
        why: "only an exact reset does (RFC 5961 sections 3 and 4); there is no setting for less",
        is: |it| {
            let is_weak = |word, flag| it.script_runs(word) && it.last_inbound(|s| s.has(flag));
            is_weak("insecure_rst=1", RST) || is_weak("insecure_syn=1", SYN)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reset up to 65,700 is in a window of which 65,535 was announced",
        why: "the window is what was announced (RFC 9293 section 3.8.6)",
        is: |it| it.last_inbound(|s| s.has(RST) && s.start > 65_535 && s.start < 66_300),
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "the answer to a SYN without options offers scaling and timestamps where SYNs cross",
        why: "only what the peer offered is agreed to (RFC 7323 sections 2.2 and 3.2)",
        is: |it| {
            let offers = |s: &Segment| s.options.iter().any(|o| matches!(o, Opt::Ts(..)));
            it.outbound_wanted().is_some_and(|s| s.has(SYN) && s.has(ACK) && offers(s))
                && it.last_inbound(|s| s.has(SYN) && !s.has(ACK) && !offers(s))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reduced window is signalled (CWR) by what is sent again",
        why: "by the first new data (RFC 3168 section 6.1.2)",
        is: |it| {
            it.outbound_wanted().is_some_and(|s| s.has(CWR) && s.len > 0)
                && it.inbound().any(|s| has_sack(s) || s.has(ECE))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "an ICMP error that prohibits a way refuses a connection that is being opened",
        why: "it is unreachable, as on Linux, too (RFC 1812 section 5.2.7.1)",
        is: |it| it.last_icmp().is_some_and(|icmp| PROHIBITS.contains(&&*icmp.code)),
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "an ICMP error of a way, or of a parameter, says nothing to a program that connects",
        why: "it is the reason of the refusal (RFC 1122 section 4.2.3.9), as on Linux; there is no \
              setting for less (icmp_may_rst=0)",
        is: |it| {
            it.last_icmp().is_some_and(|icmp| icmp.code != "port_unreachable")
                && it.failure.what.contains("expected [0]")
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reset with the number of the peer's FIN is ignored",
        why: "it ends the connection, as on Linux: some peers that have closed send it so",
        is: |it| {
            let fins: Vec<u32> =
                it.inbound().filter(|s| s.has(FIN)).map(|s| s.start + s.len).collect();
            it.call().is_some() && it.last_inbound(|s| s.has(RST) && fins.contains(&s.start))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a close with data unread sends a FIN",
        why: "a reset: the peer must know that its data was lost (RFC 2525 section 2.17)",
        is: |it| {
            let reads = |call: &&SocketCall| matches!(&*call.name, "read" | "recv" | "recvmsg");
            let read: i64 = it.calls().filter(reads).map(|call| call.result).sum();
            let came = it.inbound().map(|s| s.start.saturating_add(s.len)).max().unwrap_or(0);
            it.failure.what.starts_with("sent R. ") && i64::from(came) > read + 2
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "nothing leaves between a full window and its first ACK",
        why: "a tail loss probe does, after two RTTs (RFC 8985 section 7.2)",
        is: |it| {
            let full = it.last_outbound().is_some_and(|s| s.len > 0);
            let next = it.outbound_wanted().is_some_and(|s| s.len > 0 && !s.has(SYN));
            let acked = it.last_inbound(|s| s.len == 0 && !has_sack(s));
            full && next && acked && it.is_early_by().is_some()
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a SYN that met an answer to another connection is repeated by its timer",
        why: "at once behind the reset, as on Linux: the peer can answer it now",
        is: |it| {
            let is_reset = it.last_outbound().is_some_and(|s| s.has(RST));
            is_reset && it.is_early_by().is_some() && it.outbound_wanted().is_some_and(is_syn)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a SYN is repeated for the first time after three seconds",
        why: "after one (RFC 6298 section 2.1), as FreeBSD does since 2019",
        is: |it| {
            let of_now = it.script_runs("rexmit_initial");
            let wants_syn = it.outbound_wanted().is_some_and(is_syn);
            let again = wants_syn && it.is_early_by().is_some()
                || !wants_syn && it.failure.what.starts_with("sent S 0:0(0)");
            !of_now && again
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a segment is lost once three are reported behind it, or the window is full",
        why: "once a quarter of the RTT is over since (RFC 8985 section 6.2), which on a path \
              without a delay is at once",
        is: |it| {
            let again = |(sent, wanted)| {
                matches!((place(sent), place(wanted)),
                (Some(sent), Some(wanted)) if sent.1 > 0 && sent.0 < wanted.0)
            };
            it.sent().is_some_and(again) && it.last_inbound(has_sack)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a SYN is repeated with ECN once or more (ecn.maxretries)",
        why: "without, as on Linux: what drops it may drop it for that (RFC 3168 section 6.1.1.1)",
        is: |it| {
            let wanted = it.outbound_wanted().is_some_and(|s| is_syn(s) && s.has(ECE));
            let sent = it.sent().is_some_and(|(sent, _)| sent.starts_with("S 0:0(0)"));
            wanted && sent && it.last_outbound().is_some_and(|s| is_syn(s) && s.has(ECE))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "where SYNs cross, ECN is agreed to by the one that has not asked for it",
        why: "only by a listener, and by one that has asked (RFC 3168 section 6.1.1), as on Linux",
        is: |it| {
            let wanted = it.outbound_wanted().is_some_and(|s| s.has(SYN) && s.has(ECE));
            let asked = it.last_outbound().is_some_and(|s| is_syn(s) && !s.has(ECE));
            wanted && asked && it.last_inbound(|s| is_syn(s) && s.has(ECE))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "with TCP_NOOPT a SYN has no option at all",
        why: "a segment size is announced (RFC 9293 section 3.7.1, SHLD-5), as on Linux",
        is: |it| {
            let asks = |call: &SocketCall| call.args.iter().any(|arg| says(arg, "TCP_NOOPT"));
            let bare = it.outbound_wanted().is_some_and(|s| s.has(SYN) && s.options.is_empty());
            bare && it.calls().any(asks) && it.sent().is_some_and(|(sent, _)| sent.contains("Mss("))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "on a link of 72 bytes a segment size of 32 is announced",
        why: "of 512 at least: any host puts together 576 bytes (RFC 1122 section 3.3.2)",
        is: |it| {
            let is_tiny = |s: &Segment| s.options.iter().any(|o| matches!(o, Opt::Mss(..512)));
            it.sent().is_some_and(|(sent, _)| sent.contains("Mss(512)"))
                && it.outbound_wanted().is_some_and(|s| s.has(SYN) && is_tiny(s))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "the fourth SYN has no option but the segment size (rexmit_drop_options)",
        why: "each SYN has the same, as on Linux; there is no setting for less",
        is: |it| {
            let bare = |s: &Segment| matches!(s.options.as_slice(), [Opt::Mss(_)]);
            let wanted = it.outbound_wanted().is_some_and(|s| is_syn(s) && bare(s));
            let kept = it.sent().is_some_and(|(sent, _)| sent.starts_with("S 0:0(0)"));
            it.script_runs("rexmit_drop_options=1") && wanted && kept && it.syns_sent() >= 3
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a SYN is repeated eleven times, in steps of at most 64 seconds",
        why: "steps double up to 120 seconds (RFC 6298 section 2.5), so that there are fewer",
        is: |it| {
            let none = it.failure.what.starts_with("nothing was sent");
            none && it.syns_sent() > 6 && it.outbound_wanted().is_some_and(is_syn)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "where SYNs cross, a FIN with the peer's counts, or drops it",
        why: "the SYN counts, the FIN comes again (RFC 9293 section 3.10.7.3), as on Linux; a \
              listener drops both",
        is: |it| {
            let crosses = |s: &Segment| s.has(SYN) && s.has(FIN) && !s.has(ACK);
            it.last_inbound(crosses) && it.sent().is_some_and(|(sent, _)| sent.starts_with("S. "))
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a listener takes a SYN with FIN for a SYN",
        why: "a listener drops it, as on Linux; there is no setting for less (drop_synfin=0)",
        is: |it| {
            let answers = it.outbound_wanted().is_some_and(|s| s.has(SYN) && s.has(ACK));
            let asks = |s: &Segment| s.has(SYN) && s.has(FIN) && !s.has(ACK);
            let none = it.failure.what.starts_with("nothing was sent");
            answers && none && it.calls().any(|call| call.name == "listen") && it.last_inbound(asks)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reset in the window of a half-open connection is challenged",
        why: "an unproven address is not answered twice (docs/design/syn-cookie.md)",
        is: resets_half_open,
    },
];

/// Whether the last segment was a reset to a connection of which only the SYN had come, and the
/// script wants an answer to it.
fn resets_half_open(it: &Before<'_>) -> bool {
    let wants_ack = it.outbound_wanted().is_some_and(|s| s.has(ACK) && !s.has(SYN));
    wants_ack && it.is_half_open() && it.last_inbound(|s| s.has(RST))
}

/// The difference that a failure is due to, where it is one on purpose.
#[must_use]
pub fn permitted(script: &Script, failure: &Failure) -> Option<&'static Difference> {
    if failure.is_unsupported() {
        return None;
    }
    let before = Before { script, failure };
    let profile = script.profile();
    DIFFERENCES.iter().find(|it| it.profile == profile && (it.is)(&before))
}

#[cfg(test)]
mod tests;
