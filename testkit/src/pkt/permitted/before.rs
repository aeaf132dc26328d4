//! A script up to the line that failed, and what may be asked of it.
//!
//! Used by the rules of `permitted.rs`. Invariant: nothing behind the line that failed counts, but
//! for what a call that lasts waits for.

use std::time::Duration;

use super::super::calls::WRITES;
use super::super::icmp::Icmp;
use super::super::runner::Failure;
use super::super::script::{
    ACK, Arg, Event, Opt, RST, SYN, Script, Segment, SocketCall, What, When,
};

/// A script up to the line that failed.
pub(super) struct Before<'a> {
    pub(super) script: &'a Script,
    pub(super) failure: &'a Failure,
}

impl<'a> Before<'a> {
    pub(super) fn before(&self) -> impl Iterator<Item = &'a Event> + use<'a> {
        let line = self.failure.line;
        self.script.events.iter().take_while(move |event| event.line < line)
    }

    pub(super) fn failed(&self) -> Option<&'a Event> {
        self.script.events.iter().find(|event| event.line == self.failure.line)
    }

    pub(super) fn inbound(&self) -> impl Iterator<Item = &'a Segment> + use<'a> {
        self.before().filter_map(|event| match &event.what {
            What::Inbound(segment) => Some(segment),
            _ => None,
        })
    }

    pub(super) fn last_inbound(&self, is: impl Fn(&Segment) -> bool) -> bool {
        self.inbound().last().is_some_and(is)
    }

    /// Whether of the last connection only the SYN has come.
    pub(super) fn is_half_open(&self) -> bool {
        let (mut half_open, mut seen) = (false, false);
        for segment in self.inbound() {
            if is_syn(segment) {
                (half_open, seen) = (true, true);
            } else if segment.has(ACK) && !segment.has(RST) {
                (half_open, seen) = (false, true);
            }
        }
        half_open || !seen
    }

    pub(super) fn outbound_wanted(&self) -> Option<&'a Segment> {
        match &self.failed()?.what {
            What::Outbound(segment) => Some(segment),
            _ => None,
        }
    }

    pub(super) fn outbound(&self) -> impl Iterator<Item = &'a Segment> + use<'a> {
        self.before().filter_map(|event| match &event.what {
            What::Outbound(segment) => Some(segment),
            _ => None,
        })
    }

    pub(super) fn last_outbound(&self) -> Option<&'a Segment> {
        self.outbound().last()
    }

    /// The last event before, where it is an ICMP error and the failure one of a call.
    pub(super) fn last_icmp(&self) -> Option<&'a Icmp> {
        self.call()?;
        match &self.before().last()?.what {
            What::Icmp(icmp) => Some(icmp),
            _ => None,
        }
    }

    /// How many SYNs the script wants before this line.
    pub(super) fn syns_sent(&self) -> usize {
        let of = |event: &&Event| matches!(&event.what, What::Outbound(s) if is_syn(s));
        self.before().filter(of).count()
    }

    pub(super) fn code(&self) -> Option<&'a str> {
        match &self.failed()?.what {
            What::Code(code) => Some(code),
            _ => None,
        }
    }

    pub(super) fn call(&self) -> Option<&'a SocketCall> {
        match &self.failed()?.what {
            What::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Whether the failure is one of this call.
    pub(super) fn called(&self, name: &str) -> bool {
        self.call().is_some_and(|call| call.name == name)
    }

    /// Whether a call returned more than the script wants.
    pub(super) fn gave_more(&self) -> bool {
        let gave = self.failure.what.split(" gave Ok(").nth(1);
        let gave = gave.and_then(|rest| rest.split(')').next()?.parse::<i64>().ok());
        gave.is_some_and(|gave| self.call().is_some_and(|call| gave > call.result))
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &'a SocketCall> + use<'a> {
        self.before().filter_map(|event| match &event.what {
            What::Call(call) => Some(call),
            _ => None,
        })
    }

    pub(super) fn script_runs(&self, word: &str) -> bool {
        let runs = |event: &Event| match &event.what {
            What::Command(command) => command.contains(word),
            _ => false,
        };
        self.script.init.as_ref().is_some_and(|init| init.contains(word)) || self.before().any(runs)
    }

    /// Whether the failure is about what may leave: a segment with data, or an assertion about one
    /// of these fields.
    pub(super) fn is_about_sending(&self, fields: &[&str]) -> bool {
        let asserts = |code: &str| fields.iter().any(|field| code.contains(field));
        self.outbound_wanted().is_some_and(|segment| segment.len > 0)
            || self.code().is_some_and(asserts)
    }

    /// Whether less may leave than the script wants: an assertion finds a smaller window, or a
    /// segment is shorter than wanted, or does not leave, or a call waits for room.
    pub(super) fn is_smaller(&self) -> bool {
        let what = &self.failure.what;
        let waits = what.starts_with("nothing was sent") || what.contains("has not returned");
        waits || self.found_less("tcpi_snd_cwnd") || self.sends_less().is_some()
    }

    /// Whether an assertion found less in this field than the number that it compares with.
    pub(super) fn found_less(&self, field: &str) -> bool {
        let number = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        };
        let after = |mark: String| self.failure.what.split(&mark).nth(1).and_then(number);
        let wanted = after(format!("{field} == "));
        wanted
            .is_some_and(|wanted| after(format!("{field} is ")).is_some_and(|found| found < wanted))
    }

    /// What was sent, and what was expected in its place.
    pub(super) fn sent(&self) -> Option<(&'a str, &'a str)> {
        self.failure.what.strip_prefix("sent ")?.split_once(", expected ")
    }

    /// By how many segments (of at most 1460 bytes) less was sent than wanted, from the same place.
    pub(super) fn sends_less(&self) -> Option<u32> {
        let (sent, wanted) = self.sent()?;
        let (sent, wanted) = (place(sent)?, place(wanted)?);
        let less = wanted.1.checked_sub(sent.1).filter(|less| *less > 0 && sent.1 > 0)?;
        (sent.0 == wanted.0).then(|| less.div_ceil(1460))
    }

    /// By how much what was sent was too early.
    pub(super) fn is_early_by(&self) -> Option<Duration> {
        let times = self.failure.what.strip_prefix("sent at ")?;
        let (sent, wanted) = times.split_once("; expected at ")?;
        let wanted = wanted.split(" ±").next()?;
        time(wanted)?.checked_sub(time(sent)?)
    }

    /// Whether the last ACK that advances covers what was reported before: by SACK blocks, or where
    /// there are none by duplicates.
    pub(super) fn acks_what_was_reported(&self) -> bool {
        let (mut acked, mut duplicates, mut blocks, mut covers) = (0, 0, Vec::new(), false);
        for segment in self.inbound().filter(|s| !s.has(SYN)) {
            let Some(ack) = segment.ack else { continue };
            if ack > acked {
                let is_in = |block: &(u32, u32)| block.0 >= acked && block.1 <= ack;
                covers |= duplicates > 0 && blocks.is_empty() || blocks.iter().any(is_in);
                (acked, duplicates) = (ack, 0);
            } else if segment.len == 0 {
                duplicates += 1;
            }
            for option in &segment.options {
                if let Opt::Sack(these) = option {
                    blocks.extend(these.iter().copied());
                }
            }
        }
        covers
    }

    /// Whether the last inbound segment acknowledges what the script wants to be sent again.
    pub(super) fn acks_a_retransmission(&self) -> bool {
        let mut end = 0;
        let mut again = Vec::new();
        for event in self.before() {
            let What::Outbound(s) = &event.what else { continue };
            if s.len > 0 && s.start < end {
                again.push(s.start + s.len);
            }
            end = end.max(s.start + s.len);
        }
        let covers = |s: &Segment| s.ack.is_some_and(|ack| again.iter().any(|end| *end <= ack));
        self.last_inbound(|s| has_sack(s) && covers(s))
    }

    /// Whether the ACKs since the last write came ever later: eight or more, the last of them more
    /// than 16 ms later than the handshake's (the samples, and the highest threshold, of RFC 9406).
    pub(super) fn rtt_rises(&self) -> bool {
        let (mut first, mut since, mut acks) = (None, Duration::ZERO, 0);
        for event in self.before() {
            let When::After(gap) = event.when else { continue };
            match &event.what {
                What::Inbound(s) if s.has(SYN) => {}
                What::Inbound(_) => {
                    (since, acks) = (since + gap, acks + 1);
                    first.get_or_insert(gap);
                }
                What::Call(call) if WRITES.contains(&&*call.name) => {
                    (since, acks) = (Duration::ZERO, 0);
                }
                _ => {}
            }
        }
        let rises = |first| since > first + Duration::from_millis(16);
        acks >= 8 && first.is_some_and(rises)
    }

    /// Whether what was sent is as wanted but for the window.
    pub(super) fn differs_by_window_alone(&self) -> bool {
        let without = |text: &str| {
            let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
            if let Some(at) = words.iter().position(|word| word == "win") {
                words.drain(at..(at + 2).min(words.len()));
            }
            words
        };
        self.sent().is_some_and(|(sent, wanted)| sent != wanted && without(sent) == without(wanted))
    }

    /// Twice the size of the receive buffer that the script sets, as Linux counts it.
    pub(super) fn receive_buffer(&self) -> i64 {
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
    pub(super) fn acked_at_once(&self) -> u32 {
        let (mut acked, mut most, mut mss) = (1, 0, 536);
        // A call that lasts is in the line that fails, what it waits for behind.
        let lasts = self.failure.what.contains("has not returned");
        let all = self.script.events.iter().filter_map(|event| match &event.what {
            What::Inbound(segment) => Some(segment),
            _ => None,
        });
        let before = self.inbound().count();
        for segment in all.take(if lasts { usize::MAX } else { before }) {
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

    /// Whether a segment since the last outbound one acknowledges what was never sent.
    pub(super) fn acks_beyond(&self) -> bool {
        let (mut sent, mut beyond) = (1, false);
        for event in self.before() {
            match &event.what {
                What::Outbound(s) => {
                    sent = sent.max(s.start.saturating_add(s.len).saturating_add(1));
                    beyond = false;
                }
                What::Inbound(s) => beyond |= !s.has(SYN) && s.ack.is_some_and(|ack| ack > sent),
                _ => {}
            }
        }
        beyond
    }

    /// Whether an inbound segment before the last has brought the beginning of this one already.
    pub(super) fn is_repeated(&self, last: &Segment) -> bool {
        let brought = |s: &Segment| s.start <= last.start && s.start + s.len > last.start;
        self.inbound().filter(|s| !core::ptr::eq(*s, last)).any(brought)
    }
}

/// The first number and the length of a segment as a failure shows it.
pub(super) fn place(shown: &str) -> Option<(u32, u32)> {
    let (start, rest) = shown.split_whitespace().nth(1)?.split_once(':')?;
    let length = rest.split_once('(')?.1.strip_suffix(')')?;
    Some((start.parse().ok()?, length.parse().ok()?))
}

/// What a segment acknowledges, as a failure shows it.
pub(super) fn acked(shown: &str) -> Option<u32> {
    shown.split_once(" ack ")?.1.split_whitespace().next()?.parse().ok()
}

/// A time as a failure shows it.
pub(super) fn time(shown: &str) -> Option<Duration> {
    let (number, unit) = shown.split_at(shown.find(|c: char| c.is_alphabetic() || c == 'µ')?);
    let scale = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale).ok()
}

pub(super) fn is_syn(segment: &Segment) -> bool {
    segment.has(SYN) && !segment.has(ACK)
}

pub(super) fn has_sack(segment: &Segment) -> bool {
    segment.options.iter().any(|option| matches!(option, Opt::Sack(_)))
}

pub(super) fn writes(call: &SocketCall) -> bool {
    matches!(
        &*call.name,
        "write" | "writev" | "send" | "sendto" | "sendmsg" | "poll" | "epoll_wait"
    )
}

pub(super) fn says(arg: &Arg, word: &str) -> bool {
    match arg {
        Arg::Word(words) => words.split('|').any(|it| it == word),
        _ => false,
    }
}
