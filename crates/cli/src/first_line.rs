//! What of the first line is in force at each interface, and why the rest is not: in reports.
//!
//! Used by `report.rs` (the document of `stat`), `show.rs`, and `explain`. Keys and names are
//! stable.

use std::collections::BTreeMap;

use floodwall_device::{FirstLinePart, FirstLinePartState, FirstLineReport};
use serde::{Deserialize, Serialize};

/// One part of the first line at an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinePartReport {
    /// `cookies`, `live-flows`, `fair-credit` or `redirect`.
    pub(crate) part: String,
    /// `awake`, `asleep`, `on-demand` or `missing`.
    pub(crate) state: String,
    /// Why it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The parts of a device's report.
pub(crate) fn parts(report: &FirstLineReport) -> Vec<LinePartReport> {
    let part = |(part, state): &(FirstLinePart, FirstLinePartState)| LinePartReport {
        part: part.name().to_owned(),
        state: state.name().to_owned(),
        reason: state.reason().map(str::to_owned),
    };
    report.parts.iter().map(part).collect()
}

/// The parts at each interface, out of those of each queue: each part in the state that does most.
pub(crate) fn by_interface<'a>(
    queues: impl Iterator<Item = (&'a str, &'a [LinePartReport])>,
) -> BTreeMap<String, Vec<LinePartReport>> {
    let rank = |one: &LinePartReport| match one.state.as_str() {
        "awake" => 0,
        "asleep" => 1,
        "on-demand" => 2,
        _ => 3,
    };
    let mut all: BTreeMap<String, Vec<LinePartReport>> = BTreeMap::new();
    for (ifname, queue) in queues {
        let parts = all.entry(ifname.to_owned()).or_default();
        for part in queue {
            match parts.iter_mut().find(|other| other.part == part.part) {
                Some(other) if rank(part) < rank(other) => *other = part.clone(),
                Some(_) => {}
                None => parts.push(part.clone()),
            }
        }
    }
    all
}

/// The parts on one line; nothing where there is no program, for a reason that no setting changes.
pub(crate) fn shown(parts: &[LinePartReport]) -> Option<String> {
    let is_all_missing = parts.iter().all(|part| part.reason.is_some());
    let is_one_reason = parts.windows(2).all(|two| two[0].reason == two[1].reason);
    let is_plain = is_all_missing && is_one_reason && *parts.first()?.reason.as_ref()? == plain();
    (!is_plain).then(|| line(parts))
}

/// The reason of devices that never have a program.
fn plain() -> String {
    FirstLineReport::default().common_reason().unwrap_or_default().to_owned()
}

/// The parts on one line.
pub(crate) fn line(parts: &[LinePartReport]) -> String {
    let of = |part: &LinePartReport| match &part.reason {
        None => format!("{} {}", part.part, part.state),
        Some(reason) => format!("no {} ({reason})", part.part),
    };
    let is_one_reason = parts.windows(2).all(|two| two[0].reason == two[1].reason);
    match parts.first().and_then(|part| part.reason.as_ref()).filter(|_| is_one_reason) {
        Some(reason) => format!("none: {reason}"),
        None => parts.iter().map(of).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, state: &str, reason: Option<&str>) -> LinePartReport {
        LinePartReport {
            part: name.to_owned(),
            state: state.to_owned(),
            reason: reason.map(str::to_owned),
        }
    }

    #[test]
    fn an_interface_with_an_awake_queue_is_awake_and_a_missing_part_gives_its_reason() {
        let queue = |state: &&str| {
            let redirect = part("redirect", "missing", Some("this host forwards nothing"));
            vec![part("cookies", state, None), redirect]
        };
        let queues: Vec<_> = ["asleep", "awake", "asleep"].iter().map(queue).collect();
        let all = by_interface(queues.iter().map(|parts| ("eth0", &parts[..])));
        let line = line(&all["eth0"]);
        assert_eq!(line, "cookies awake, no redirect (this host forwards nothing)");
        assert_eq!(shown(&all["eth0"]), Some(line));
    }

    #[test]
    fn what_has_no_program_by_its_kind_is_not_shown_and_what_is_off_is() {
        assert_eq!(shown(&parts(&FirstLineReport::default())), None);
        let off = parts(&FirstLineReport::missing("it is off, as configured"));
        assert_eq!(shown(&off).as_deref(), Some("none: it is off, as configured"));
        assert_eq!(shown(&[]), None);
    }
}
