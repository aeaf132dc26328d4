//! Where packets are lost between the left host and the right one, each place by its own counter.
//!
//! Called by `flooded_router.rs` before and after a trial. Counters of the kernel's: of each
//! cable's ends (a virtual cable counts what its ring refused at the sender's end), of the queue
//! between interrupt and stack (`softnet`), of sockets that are full. Ours: what `floodwall stat`
//! reports of devices, the worker and the stack. Not here: what is no loss.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::shown_by_ip;

/// Packets lost, by place.
#[derive(Clone, Default, Debug)]
pub(super) struct Losses(BTreeMap<String, u64>);

impl Losses {
    /// What was lost since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let lost = self.0.iter().map(|(place, count)| {
            (place.clone(), count - before.0.get(place).copied().unwrap_or(0).min(*count))
        });
        Self(lost.filter(|(_, count)| *count > 0).collect())
    }

    /// In words, the greatest first.
    pub(super) fn words(&self) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, count)| core::cmp::Reverse(**count));
        let words: Vec<_> = all.iter().map(|(place, count)| format!("{place} {count}")).collect();
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }

    fn add(&mut self, place: String, count: u64) {
        *self.0.entry(place).or_default() += count;
    }

    /// Of these interfaces and of the sockets of the calling thread's namespace, which is called
    /// `place`.
    pub(super) fn look(&mut self, place: &str, interfaces: &[&str]) {
        for name in interfaces {
            let shown = shown_by_ip(&format!("-s -j link show dev {name}"));
            let Ok(shown) = serde_json::from_str::<Value>(&shown) else { continue };
            for side in ["rx", "tx"] {
                let dropped = shown[0]["stats64"][side]["dropped"].as_u64().unwrap_or(0);
                self.add(format!("{place} {name} {side} dropped"), dropped);
            }
        }
        for (file, names) in [
            ("snmp", ["Udp: RcvbufErrors", "Ip: OutDiscards", "Ip: OutNoRoutes"]),
            ("snmp6", ["Udp6RcvbufErrors", "Ip6OutDiscards", "Ip6OutNoRoutes"]),
        ] {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            let text = text.unwrap_or_default();
            for name in names {
                self.add(format!("{place} {name}"), counter(&text, name).unwrap_or(0));
            }
        }
    }

    /// Of the queues between interrupt and stack, on all cores.
    pub(super) fn look_at_softnet(&mut self) {
        let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        let second = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
        self.add("softnet".to_owned(), text.lines().filter_map(second).sum());
    }

    /// Adds the losses that an instance of ours reports.
    pub(super) fn look_at_ours(&mut self, stat: &Value) {
        for device in stat["devices"].as_array().into_iter().flatten() {
            let name = device["ifname"].as_str().unwrap_or_default();
            for (what, count) in device["stats"].as_object().into_iter().flatten() {
                if !what.ends_with("packets") && !what.ends_with("bytes") {
                    self.add(format!("ours {name} {what}"), count.as_u64().unwrap_or(0));
                }
            }
        }
        for (what, count) in stat["worker"].as_object().into_iter().flatten() {
            if what.starts_with("drops_") {
                self.add(format!("ours {what}"), count.as_u64().unwrap_or(0));
            }
        }
        for drop in stat["drops"].as_array().into_iter().flatten() {
            let reason = drop["reason"].as_str().unwrap_or_default();
            self.add(format!("ours {reason}"), drop["count"].as_u64().unwrap_or(0));
        }
    }
}

/// A counter of the kernel's in either file's form: names on one line and numbers on the next, or a
/// name and its number on each.
fn counter(text: &str, name: &str) -> Option<u64> {
    let Some((protocol, field)) = name.split_once(": ") else {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        return line.split_whitespace().nth(1)?.parse().ok();
    };
    let of_protocol = |line: &&str| line.split(':').next() == Some(protocol);
    let mut lines = text.lines().filter(of_protocol);
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == field)?;
    numbers.split_whitespace().nth(at)?.parse().ok()
}

#[test]
fn counters_are_read_in_both_forms() {
    let old = "Ip: Forwarding OutDiscards\nIp: 1 7\nUdp: InErrors RcvbufErrors\nUdp: 3 4\n";
    assert_eq!(counter(old, "Ip: OutDiscards"), Some(7));
    assert_eq!(counter(old, "Udp: RcvbufErrors"), Some(4));
    assert_eq!(counter(old, "Udp: Nonsense"), None);
    let new = "Udp6InErrors                    \t1\nUdp6RcvbufErrors                \t5\n";
    assert_eq!(counter(new, "Udp6RcvbufErrors"), Some(5));
    assert_eq!(counter(new, "Udp6"), None);
}
