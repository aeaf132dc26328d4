//! Where scripts of others fail for what Floodwall does on purpose.
//!
//! Called by `cargo xtask conformance`. Invariant: a failure is permitted only by a difference of
//! the script's own profile, whose cause stands in the script at or before the line that failed.
//! What is not done yet is not here: it is refused with the token that requires it.

use super::profile::Profile;
use super::runner::Failure;
use super::script::{
    ACK, Arg, CWR, ECE, Event, FIN, Opt, RST, SYN, Script, Segment, SocketCall, What,
};

/// What scripts require that Floodwall does otherwise on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The system whose behaviour they expect.
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
        what: "one ACK of ten segments opens the window by ten in slow start",
        why: "eight at most where nothing is paced (RFC 9406 section 4.2); a smaller burst follows",
        is: |it| it.is_about_sending(&["snd_cwnd", "unacked"]) && it.acked_at_once() > 8,
    },
    Difference {
        profile: Profile::Linux,
        what: "an ACK of segments that were reported before opens the window by one",
        why: "it opens it by what it acknowledges (RFC 3465)",
        is: |it| it.is_about_sending(&["snd_cwnd"]) && it.inbound().any(has_sack),
    },
    Difference {
        profile: Profile::Linux,
        what: "a timeout leaves a threshold of 0.7 windows",
        why: "of half of what was in flight (RFC 5681 section 3.1, equation 4)",
        is: |it| it.code().is_some_and(|code| code.contains("ssthresh")),
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
        why: "Floodwall counts its own; both take all in the end",
        is: |it| it.call().is_some_and(|call| writes(call) && call.result > 0),
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
            it.outbound_wanted().is_some() && it.last_inbound(|s| i64::from(s.len) > room)
        },
    },
    Difference {
        profile: Profile::Linux,
        what: "MSG_EOR ends a segment",
        why: "TCP has no record boundaries (RFC 9293 section 3.9.1)",
        is: |it| it.calls().any(|call| call.args.iter().any(|arg| says(arg, "MSG_EOR"))),
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "with insecure_rst or insecure_syn, any reset or SYN in the window ends a connection",
        why: "only an exact reset does (RFC 5961 sections 3 and 4); there is no setting for less",
        is: |it| {
            let weak = ["insecure_rst=1", "insecure_syn=1"];
            let cut = |s: &Segment| s.has(RST) || s.has(SYN);
            weak.iter().any(|word| it.script_runs(word)) && it.inbound().any(cut)
        },
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reset up to 65,700 is in a window of which 65,535 was announced",
        why: "the window is what was announced (RFC 9293 section 3.8.6)",
        is: |it| it.last_inbound(|s| s.has(RST) && s.start > 65_535 && s.start <= 66_240),
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
        is: |it| it.call().is_some() && it.before().any(|e| matches!(e.what, What::Icmp(_))),
    },
    Difference {
        profile: Profile::FreeBsd,
        what: "a reset in the window of a half-open connection is challenged",
        why: "an unproven address is not answered twice (docs/design/syn-cookie.md)",
        is: |it| {
            let is_open = it.inbound().any(|s| s.has(ACK) && !s.has(RST));
            !is_open && it.last_inbound(|s| s.has(RST)) && it.outbound_wanted().is_some()
        },
    },
];

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

/// A script up to the line that failed.
struct Before<'a> {
    script: &'a Script,
    failure: &'a Failure,
}

impl<'a> Before<'a> {
    fn before(&self) -> impl Iterator<Item = &'a Event> + use<'a> {
        let line = self.failure.line;
        self.script.events.iter().take_while(move |event| event.line < line)
    }

    fn failed(&self) -> Option<&'a Event> {
        self.script.events.iter().find(|event| event.line == self.failure.line)
    }

    fn inbound(&self) -> impl Iterator<Item = &'a Segment> + use<'a> {
        self.before().filter_map(|event| match &event.what {
            What::Inbound(segment) => Some(segment),
            _ => None,
        })
    }

    fn last_inbound(&self, is: impl Fn(&Segment) -> bool) -> bool {
        self.inbound().last().is_some_and(is)
    }

    fn outbound_wanted(&self) -> Option<&'a Segment> {
        match &self.failed()?.what {
            What::Outbound(segment) => Some(segment),
            _ => None,
        }
    }

    fn code(&self) -> Option<&'a str> {
        match &self.failed()?.what {
            What::Code(code) => Some(code),
            _ => None,
        }
    }

    fn call(&self) -> Option<&'a SocketCall> {
        match &self.failed()?.what {
            What::Call(call) => Some(call),
            _ => None,
        }
    }

    fn calls(&self) -> impl Iterator<Item = &'a SocketCall> + use<'a> {
        self.before().filter_map(|event| match &event.what {
            What::Call(call) => Some(call),
            _ => None,
        })
    }

    fn script_runs(&self, word: &str) -> bool {
        let runs = |event: &Event| match &event.what {
            What::Command(command) => command.contains(word),
            _ => false,
        };
        self.script.init.as_ref().is_some_and(|init| init.contains(word)) || self.before().any(runs)
    }

    /// Whether the failure is about what may leave: a segment with data, or an assertion about one
    /// of these fields.
    fn is_about_sending(&self, fields: &[&str]) -> bool {
        let asserts = |code: &str| fields.iter().any(|field| code.contains(field));
        self.outbound_wanted().is_some_and(|segment| segment.len > 0)
            || self.code().is_some_and(asserts)
    }

    /// Whether what was sent is as wanted but for the window.
    fn differs_by_window_alone(&self) -> bool {
        let without = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            if let Some(at) = words.iter().position(|word| word == "win") {
                words.drain(at..(at + 2).min(words.len()));
            }
            words
        };
        let sides =
            self.failure.what.strip_prefix("sent ").and_then(|it| it.split_once(", expected "));
        sides.is_some_and(|(sent, wanted)| sent != wanted && without(sent) == without(wanted))
    }

    /// Twice the size of the receive buffer that the script sets, as Linux counts it.
    fn receive_buffer(&self) -> i64 {
        let set = self.calls().filter(|call| call.args.iter().any(|arg| says(arg, "SO_RCVBUF")));
        let sizes = set.filter_map(|call| match call.args.get(3)? {
            Arg::List(list) => match list.first()? {
                Arg::Int(size) => Some(size.saturating_mul(2)),
                _ => None,
            },
            _ => None,
        });
        sizes.last().unwrap_or(i64::MAX)
    }

    /// The most segments that one inbound segment acknowledged.
    fn acked_at_once(&self) -> u32 {
        let (mut acked, mut most, mut mss) = (1, 0, 536);
        for segment in self.inbound() {
            let told = segment.options.iter().find_map(|option| match option {
                Opt::Mss(mss) => Some(u32::from(*mss)),
                _ => None,
            });
            if segment.has(SYN) {
                mss = told.unwrap_or(mss).max(1);
            } else if let Some(ack) = segment.ack.filter(|ack| *ack > acked) {
                most = most.max((ack - acked).div_ceil(mss));
                acked = ack;
            }
        }
        most
    }

    /// Whether the last inbound segment acknowledges what was never sent.
    fn acks_beyond(&self) -> bool {
        let end = |event: &Event| match &event.what {
            What::Outbound(s) => Some(s.start.saturating_add(s.len).saturating_add(1)),
            _ => None,
        };
        let sent = self.before().filter_map(end).max().unwrap_or(1);
        self.last_inbound(|segment| !segment.has(SYN) && segment.ack.is_some_and(|ack| ack > sent))
    }

    /// Whether an inbound segment before the last has brought the beginning of this one already.
    fn is_repeated(&self, last: &Segment) -> bool {
        let brought = |s: &Segment| s.start <= last.start && s.start + s.len > last.start;
        self.inbound().filter(|s| !core::ptr::eq(*s, last)).any(brought)
    }
}

fn has_sack(segment: &Segment) -> bool {
    segment.options.iter().any(|option| matches!(option, Opt::Sack(_)))
}

fn writes(call: &SocketCall) -> bool {
    matches!(
        &*call.name,
        "write" | "writev" | "send" | "sendto" | "sendmsg" | "poll" | "epoll_wait"
    )
}

fn says(arg: &Arg, word: &str) -> bool {
    match arg {
        Arg::Word(words) => words.split('|').any(|it| it == word),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
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
            assert!(*profile != Profile::Own && !what.is_empty() && !why.is_empty());
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
        assert!(why(&ack(10_001), "12001", "?").unwrap().contains("ten segments"));
        assert_eq!(why(&ack(8001), "12001", "?"), None);
        // The line before the cause is no consequence of it.
        assert_eq!(why(&ack(10_001), "mss 1460", "?"), None);
        let code = |text: &str| format!("+0 %{{ assert {text} }}%\n");
        assert!(why(&code("tcpi_snd_ssthresh == 7"), "assert", "?").unwrap().contains("0.7"));
        assert!(why(&code("tcpi_ca_state == TCP_CA_CWR"), "assert", "?").unwrap().contains("mark"));
        assert_eq!(why(&code("tcpi_unacked == 7"), "assert", "?"), None);
        let write = "+0 write(3, ..., 9000) = 4000\n";
        assert!(why(write, "write", "?").unwrap().contains("structures"));
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
        assert!(why(&large(60_000), "ack 9", "?").unwrap().contains("taken whole"));
        assert_eq!(why(&large(30_000), "ack 9", "?"), None);
        let beyond = "+0 < . 1:1(0) ack 9000 win 9\n+0 > . 1:1(0) ack 1\n";
        assert!(why(beyond, "> . 1:1", "?").unwrap().contains("never sent"));
    }
}
