//! Attack tools of others against `floodwall run`, while an honest host of the same link pings.
//!
//! Claim of every test here: while the tool runs at a pace that the link's path itself carries, at
//! most one honest ping in a hundred is lost, and afterwards none; memory stays within a bound that
//! does not depend on how long it lasts; every packet is accounted for exactly once, and every drop
//! has a reason. On a virtual cable the sender's core does the receiver's work too, so each tool is
//! held to a pace (`Host::pace`); what was offered and what arrived is printed. `FLOODWALL_DEEP=1`
//! lasts longer and comes faster. Tools: `thc.rs`, `si6.rs`, `scans.rs`. Not here: floods of our
//! own making (crate `drill`), the rows of packets (`tests/security`).

mod honest;
mod scans;
mod si6;
mod thc;

use std::time::Duration;

use floodwall_base::limits;
use serde_json::Value;

use crate::attacks::honest::{Lost, Pings, assert_all_answered};
use crate::command::{Process, Said};
use crate::instance::{Instance, arrived, assert_conserved};
use crate::link::{Kind, MTU};
use crate::namespace::{inside, is_deep, tell, until};
use crate::site::{Host, Site};

/// Ours, on every site here.
pub(crate) const ADDRESSES: &str = "--address 10.77.0.2/24 --address fd77::2/64";
/// How long a tool may think before its first packets: some warn, and wait five seconds.
const WARNING: Duration = Duration::from_secs(20);
/// Packets of the tool's that show that it is under way.
const UNDER_WAY: u64 = 20;
/// What we may hold more after a flood than before, in KiB: tables and buffers that are there from
/// the start but were never touched.
const GROWTH_MAX: u64 = 24 * 1024;

/// How often a flood is tried again where the way to us was too busy.
const TRIES_MORE: u32 = 2;

/// How long each family is pinged while a tool runs.
fn length() -> Duration {
    Duration::from_millis(if is_deep() { 60_000 } else { 1500 })
}

/// Packets a second that a tool may send.
fn pace() -> u32 {
    if is_deep() { 40_000 } else { 10_000 }
}

/// One link with us, an honest host, and an attacker.
struct Scene {
    pace: Option<u32>,
    instance: Instance,
    honest: Host,
    unknown: Host,
}

impl Scene {
    /// `None`, and said so, where this machine cannot.
    fn set_up(kind: Kind, pace: Option<u32>, flags: &str) -> Option<Self> {
        let site = Site::new(MTU);
        let (honest, unknown) = (site.host(3), site.host(9));
        if !pace.is_none_or(|pace| unknown.pace(pace)) {
            crate::namespace::skip("`tc` is missing or cannot hold a tool to its pace");
            return None;
        }
        // Router advertisements are accepted here, so that an endless series of them reaches all
        // their tables.
        let flags = format!("{ADDRESSES} --accept-ra --autoconf {flags}");
        let instance = Instance::start(&site, kind, &flags)?;
        let scene = Self { pace, instance, honest, unknown };
        // Our addresses are tentative for a second.
        let answered = |addr: &str| {
            let words = format!("-n -q -c 1 -W 0.3 {addr}");
            scene.honest.inside(|| crate::command::run("ping", &words, b""))
        };
        for addr in honest::OURS {
            assert!(until(WARNING, || answered(addr).is_none_or(|said| said.status.success())));
        }
        Some(scene)
    }

    /// Runs a tool in the attacker's namespace until the honest pings are through, and judges them.
    /// Returns the counters before and after; `None`, with a message, where something is missing.
    ///
    /// On a machine with much else to do the packets may come faster than we get the core to take
    /// them: where the path to us has lost packets, it is tried again at a lower pace. At the
    /// lowest one the honest host loses at most twice the share that the path lost of all, and one
    /// in 50.
    fn flood(&self, program: &str, words: &str) -> Option<(Value, Value)> {
        for tries in 0.. {
            let (before, held) = (self.instance.stat(), self.instance.resident());
            let lost_before = self.instance.lost_on_the_way();
            let (during, offered, peak) = self.flooded(program, words)?;
            let after = self.instance.wait_until_idle();
            let received = arrived(&after) - arrived(&before);
            let on_the_way = self.instance.lost_on_the_way() - lost_before;
            tell(&format!(
                "`{program} {words}`: {offered} offered, {received} arrived, {on_the_way} lost on \
                 the way; honest pings: {during:?}; memory {held} -> {peak} KiB; {}",
                drops_between(&before, &after)
            ));
            assert!(peak <= held + GROWTH_MAX, "{held} KiB before, {peak} KiB under flood");
            assert_conserved(&after);
            assert_bounded(&after);
            assert_all_answered(&self.honest);
            if during.iter().all(Lost::is_at_most_one_in_a_hundred) {
                return Some((before, after));
            }
            let slower = self.pace.map(|pace| pace >> (2 * (tries + 1)));
            if tries == TRIES_MORE {
                let all = received + on_the_way;
                let explained = |lost: &Lost| {
                    lost.is_at_most_one_in_a_hundred() || lost.is_explained_by(on_the_way, all)
                };
                assert!(during.iter().all(explained), "{during:?}, {on_the_way} of {all}");
                return Some((before, after));
            }
            assert!(
                on_the_way > 0 && slower.is_none_or(|pace| self.unknown.pace(pace)),
                "{during:?}"
            );
        }
        None
    }

    /// The flood itself: what became of the pings, packets of the tool's, memory then.
    fn flooded(&self, program: &str, words: &str) -> Option<(Vec<Lost>, u64, u64)> {
        let sent_before = self.unknown.sent();
        let sent = || self.unknown.sent() - sent_before;
        let mut tool = self.unknown.inside(|| Process::start(program, words, b""))?;
        let began = until(WARNING, || sent() >= UNDER_WAY || tool.has_ended());
        if !began || sent() < UNDER_WAY {
            let Said { text, complaint, .. } = tool.kill();
            panic!("`{program} {words}` sends nothing: {text} {complaint}");
        }
        let during = Pings::start(&self.honest, length())?.end();
        let peak = self.instance.resident();
        // Many of these tools ignore Ctrl-C.
        tool.kill();
        Some((during, sent(), peak))
    }

    fn end(self) -> Value {
        self.instance.end().0
    }
}

/// One flood on one link.
fn withstand(kind: Kind, program: &'static str, words: &'static str) {
    withstand_and(kind, Some(pace()), program, words, |_, _| ());
}

/// The same by a tool that comes in bursts.
fn withstand_unpaced(kind: Kind, program: &'static str, words: &'static str) {
    withstand_and(kind, None, program, words, |_, _| ());
}

/// The same, and something to say of what was counted before and after.
fn withstand_and(
    kind: Kind,
    pace: Option<u32>,
    program: &'static str,
    words: &'static str,
    judge: fn(&Value, &Value),
) {
    inside(move || {
        let Some(scene) = Scene::set_up(kind, pace, "") else { return };
        let Some((before, after)) = scene.flood(program, words) else { return };
        judge(&before, &after);
        scene.end();
    });
}

/// After any messages of the attacker, the lists that they fill are no longer than guaranteed.
fn assert_bounded(stat: &Value) {
    let network = &stat["network"];
    let len = |list: &Value| list.as_array().unwrap().len();
    assert!(len(&network["routers"]) <= limits::ROUTERS_MAX, "{network:#}");
    assert!(len(&network["prefixes"]) <= limits::PREFIXES_MAX, "{network:#}");
    assert!(len(&stat["neighbours"]) <= 2 * limits::NEIGHBORS_MAX);
    assert!(len(&network["dns"]["servers"]) <= limits::DNS_SERVERS_MAX, "{network:#}");
    for link in network["links"].as_array().unwrap() {
        assert!(len(&link["addr_info"]) <= limits::ADDRESSES_MAX, "{link:#}");
    }
    for waiting in network["reassembly"].as_array().unwrap() {
        let bytes = waiting["bytes"].as_u64().unwrap();
        assert!(bytes <= limits::REASSEMBLY_BYTES as u64, "{waiting}");
    }
}

/// What one counter has gained.
fn gained(before: &Value, after: &Value, name: &str) -> u64 {
    let of = |stat: &Value| stat["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}"));
    of(after) - of(before)
}

/// The reasons of all drops so far.
fn drops_of(stat: &Value) -> String {
    drops_between(&serde_json::json!({"drops": []}), stat)
}

/// The reasons of the drops in between.
fn drops_between(before: &Value, after: &Value) -> String {
    let of = |stat: &Value| stat["drops"].as_array().unwrap().clone();
    let earlier = of(before);
    let mut said = String::from("dropped");
    for drop in of(after) {
        let same =
            |it: &&Value| it["reason"] == drop["reason"] && it["direction"] == drop["direction"];
        let was = earlier.iter().find(same).map_or(0, |it| it["count"].as_u64().unwrap());
        let count = drop["count"].as_u64().unwrap() - was;
        if count > 0 {
            said += &format!(" {} {count}", drop["reason"].as_str().unwrap());
        }
    }
    said
}
