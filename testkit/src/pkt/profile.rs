//! Profiles: the system that a script was written for.
//!
//! Scripts of others expect what the system does that they were written for, where a standard
//! leaves a choice. A profile is settings of Floodwall, chosen as near as can be; all else in a
//! script is compared as always. Against a kernel nothing of this applies. Not here: the
//! differences that remain, each with its reason (`permitted.rs`).

use std::time::Duration;

use super::script::{ACK, Arg, ECE, FIN, PSH, Script, What};
use super::script::{Opt, SYN, Segment};

/// By how much Floodwall scales the window of a buffer as large as its own scripts have.
const OWN_SCALE: u8 = 3;

/// The system that a script was written for, and so the behaviour that it expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Profile {
    /// Floodwall as it is.
    #[default]
    Own,
    /// Linux, as Google's and Linux's own scripts set it up (`defaults.sh`).
    Linux,
    /// FreeBSD, as its test suite sets it up (by `sysctl` and `sockstat`).
    FreeBsd,
}

impl Profile {
    /// The one that a script's commands ask for.
    pub(super) fn of(script: &Script) -> Self {
        let timed = script.events.iter().filter_map(|event| match &event.what {
            What::Command(command) => Some(command),
            _ => None,
        });
        let has = |words: &[&str]| {
            let mut all = script.init.iter().chain(timed.clone());
            all.any(|command| words.iter().any(|word| command.contains(word)))
        };
        if has(&["defaults.sh", "net.ipv4.", "net/ipv4/"]) {
            Self::Linux
        } else if has(&["net.inet.", "kern.ipc.", "sockstat"]) || speaks_bsd(script) {
            Self::FreeBsd
        } else {
            // Some scripts run nothing, on a machine that is set up already.
            match offered(script) {
                Some((Self::Own, _)) | None => Self::Own,
                Some((of, _)) => of,
            }
        }
    }

    /// By how much windows are scaled on the machine that a script was written on, where it sets
    /// that machine up by nothing.
    pub(super) fn scale_of(script: &Script) -> Option<u8> {
        let is_setting = |event: &super::script::Event| matches!(event.what, What::Command(_));
        if script.init.is_some() || script.events.iter().any(is_setting) {
            return None;
        }
        offered(script).filter(|(profile, _)| *profile == Self::Linux).map(|(_, shift)| shift)
    }

    /// Its name, and where what is sent may differ from the script's words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Own => "floodwall: compared word for word",
            Self::Linux => {
                "linux: PSH that Linux sets at the end of a burst is not required while more \
                 waits, and may be set where nothing does (RFC 9293 section 3.9.1); a SYN's window \
                 may be larger by less than a segment, as Linux announces whole segments; an \
                 acknowledgment may leave before its delay is over (RFC 5681 section 4.2)"
            }
            Self::FreeBsd => {
                "freebsd: options of SYNs in any order, with any padding (RFC 9293 section 3.1); \
                 a window may be smaller by less than a segment, as its edge moves by whole \
                 segments (RFC 9293 section 3.8.6.2.2); duplicates may be reported before other \
                 blocks (RFC 2883); a FIN that has left is not repeated in the answer to the \
                 peer's (RFC 9293 section 3.6); an acknowledgment may leave before its delay is \
                 over (RFC 5681 section 4.2)"
            }
        }
    }

    /// Whether a segment may leave so much earlier than in the script: a pure acknowledgment that
    /// the script's system delays. None may be delayed by half a second or more (RFC 5681 section
    /// 4.2); none need be.
    pub(super) fn forgives_early(self, sent: &Segment, by: Duration) -> bool {
        let is_ack = sent.flags & !ECE == ACK && sent.len == 0;
        self != Self::Own && is_ack && by < Duration::from_millis(500)
    }

    /// What was sent, in the words that the system of this profile would have chosen, where that
    /// is all that differs. `written` is how far the stream goes that programs have written.
    pub(super) fn translate(self, wanted: &Segment, sent: &mut Segment, written: u32, mss: u32) {
        match self {
            Self::Own => {}
            Self::Linux => {
                let end = sent.start.wrapping_add(sent.len);
                let more_waits = sent.len > 0 && written.wrapping_sub(end).cast_signed() > 0;
                if more_waits && wanted.has(PSH) {
                    sent.flags |= PSH;
                }
                if sent.len > 0 && !more_waits && !wanted.has(PSH) {
                    sent.flags &= !PSH;
                }
                if let (true, Some(wanted), Some(win)) = (sent.has(SYN), wanted.win, sent.win)
                    && win > wanted
                    && u32::from(win - wanted) < mss
                {
                    sent.win = Some(wanted);
                }
            }
            Self::FreeBsd => {
                if wanted.has(SYN) && sent.has(SYN) && same_options(wanted, sent) {
                    sent.options.clone_from(&wanted.options);
                }
                let after_fin = wanted.start.wrapping_add(1);
                let is_bare = wanted.flags == FIN | ACK && wanted.len == 0 && sent.flags == ACK;
                if is_bare && sent.len == 0 && sent.start == after_fin {
                    (sent.flags, sent.start) = (wanted.flags, wanted.start);
                }
                if sacks(wanted) != sacks(sent) {
                    without_duplicate(sent);
                }
                if let (Some(wanted), Some(win)) = (wanted.win, sent.win) {
                    let lag = u32::from(wanted.saturating_sub(win));
                    if win > 0 && win < wanted && lag < mss {
                        sent.win = Some(wanted);
                    }
                }
            }
        }
    }
}

/// Whether a script without any command is FreeBSD's: no other pads a SYN-ACK with ends of lists,
/// nor reads the size of a receive buffer that was never set.
fn speaks_bsd(script: &Script) -> bool {
    script.events.iter().any(|event| match &event.what {
        What::Outbound(segment) => segment.options.contains(&Opt::Eol),
        What::Call(call) => {
            let asks = |arg: &Arg| *arg == Arg::Word("SO_RCVBUF".to_owned());
            call.name == "getsockopt" && call.args.iter().any(asks)
        }
        _ => false,
    })
}

/// By how much windows are scaled in the first SYN that must leave, and the order of its options:
/// FreeBSD offers a scale before SACK, Linux behind it, as Floodwall does with a scale of its own.
fn offered(script: &Script) -> Option<(Profile, u8)> {
    let syn = script.events.iter().find_map(|event| match &event.what {
        What::Outbound(segment) if segment.has(SYN) => Some(segment),
        _ => None,
    })?;
    let place = |is: &dyn Fn(&Opt) -> bool| syn.options.iter().position(is);
    let at = place(&|option| matches!(option, Opt::Wscale(_)))?;
    let sack = place(&|option| *option == Opt::SackOk);
    let Some(Opt::Wscale(shift)) = syn.options.get(at) else { return None };
    let profile = match sack {
        Some(sack) if at < sack => Profile::FreeBsd,
        _ if *shift != OWN_SCALE => Profile::Linux,
        _ => Profile::Own,
    };
    Some((profile, *shift))
}

fn sacks(segment: &Segment) -> Option<&Opt> {
    segment.options.iter().find(|option| matches!(option, Opt::Sack(_)))
}

/// Takes away the block that reports a duplicate (RFC 2883 section 4), where one is there: what was
/// acknowledged already, or is in the second block.
fn without_duplicate(sent: &mut Segment) {
    let ack = sent.ack.unwrap_or(0);
    let before = |a: u32, b: u32| b.wrapping_sub(a).cast_signed() >= 0;
    for option in &mut sent.options {
        let Opt::Sack(blocks) = option else { continue };
        let Some(&(left, right)) = blocks.first() else { continue };
        let is_held =
            blocks.get(1).is_some_and(|other| before(other.0, left) && before(right, other.1));
        if before(right, ack) || is_held {
            blocks.remove(0);
        }
    }
    // Without blocks there is no option, nor its padding.
    if sacks(sent) == Some(&Opt::Sack(Vec::new())) {
        let at = sent.options.iter().position(|it| matches!(it, Opt::Sack(_))).unwrap_or(0);
        sent.options.drain(at.saturating_sub(2)..=at);
    }
}

/// Whether two segments have equal options, in any order and with any padding.
fn same_options(a: &Segment, b: &Segment) -> bool {
    let said = |segment: &Segment| {
        let options = segment.options.iter().filter(|it| !matches!(it, Opt::Nop | Opt::Eol));
        let mut said: Vec<String> = options
            .map(|option| match option {
                // Values of timestamps are learnt, not compared.
                Opt::Ts(..) => "TS".to_owned(),
                other => format!("{other:?}"),
            })
            .collect();
        said.sort();
        said
    };
    said(a) == said(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: u16, win: u16, options: Vec<Opt>) -> Segment {
        Segment { flags, win: Some(win), options, start: 1, ..Segment::default() }
    }

    #[test]
    fn only_what_a_profile_names_is_translated() {
        let (one, other) = (vec![Opt::SackOk, Opt::Mss(9)], vec![Opt::Mss(9), Opt::SackOk]);
        let wanted = segment(SYN, 500, one.clone());
        for (profile, options, win, equal) in [
            (Profile::FreeBsd, other.clone(), 401, true),
            (Profile::FreeBsd, other.clone(), 400, false),
            (Profile::FreeBsd, other.clone(), 501, false),
            (Profile::FreeBsd, vec![Opt::Mss(9)], 500, false),
            (Profile::FreeBsd, vec![Opt::Mss(8), Opt::SackOk], 500, false),
            (Profile::Linux, other.clone(), 500, false),
            (Profile::Own, other, 500, false),
            (Profile::Own, one, 499, false),
        ] {
            let mut sent = segment(SYN, win, options);
            profile.translate(&wanted, &mut sent, 0, 100);
            assert_eq!(sent == wanted, equal, "{profile:?} {sent:?}");
        }
    }

    #[test]
    fn a_fin_need_not_be_repeated_once_it_has_left() {
        let wanted = Segment { flags: FIN | ACK, start: 7, ..Segment::default() };
        for (profile, flags, start, len, equal) in [
            (Profile::FreeBsd, ACK, 8, 0, true),
            (Profile::FreeBsd, ACK, 7, 0, false),
            (Profile::FreeBsd, ACK | PSH, 8, 0, false),
            (Profile::FreeBsd, ACK, 8, 1, false),
            (Profile::Linux, ACK, 8, 0, false),
        ] {
            let mut sent = Segment { flags, start, len, ..Segment::default() };
            profile.translate(&wanted, &mut sent, 0, 100);
            assert_eq!(sent == wanted, equal, "{profile:?} {sent:?}");
        }
    }

    #[test]
    fn a_duplicates_report_is_taken_away_where_it_is_one() {
        for (blocks, ack, left) in [
            (vec![(5, 9), (20, 30)], 10, vec![(20, 30)]),
            (vec![(22, 25), (20, 30)], 10, vec![(20, 30)]),
            (vec![(20, 30), (40, 50)], 10, vec![(20, 30), (40, 50)]),
        ] {
            let mut sent = segment(0, 1, vec![Opt::Nop, Opt::Nop, Opt::Sack(blocks)]);
            sent.ack = Some(ack);
            without_duplicate(&mut sent);
            assert_eq!(sacks(&sent), Some(&Opt::Sack(left)), "{sent:?}");
        }
        let mut sent = segment(0, 1, vec![Opt::Nop, Opt::Nop, Opt::Sack(vec![(5, 9)])]);
        sent.ack = Some(10);
        without_duplicate(&mut sent);
        assert_eq!(sent.options, Vec::new());
    }

    #[test]
    fn a_push_is_forgiven_only_while_more_waits() {
        let wanted = Segment { flags: PSH, start: 1, len: 100, ..Segment::default() };
        for (profile, written, equal) in [
            (Profile::Linux, 102, true),
            (Profile::Linux, 101, false),
            (Profile::Own, 102, false),
            (Profile::FreeBsd, 102, false),
        ] {
            let mut sent = Segment { flags: 0, ..wanted.clone() };
            profile.translate(&wanted, &mut sent, written, 100);
            assert_eq!(sent == wanted, equal, "{profile:?} {written}");
        }
    }
}
