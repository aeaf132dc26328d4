//! `tracepath`: we are the end of the way, and its largest packet is the link's.

use crate::bench::Bench;
use crate::command::run;
use crate::link::{Ends, Kind, MTU, ends_at};
use crate::namespace::inside;

fn traced(bench: Bench, mtu: u32) {
    for Ends { ours, .. } in ends_at(mtu) {
        let family = if ours.is_ipv4() { "-4" } else { "-6" };
        let Some(said) = run("tracepath", &format!("{family} -n -m 5 {ours}"), b"") else { return };
        let reached = |line: &str| line.contains(&ours.to_string()) && line.contains("reached");
        assert!(said.text.lines().any(reached), "{} {}", said.text, said.complaint);
        let end = format!("Resume: pmtu {mtu} hops 1 back 1");
        assert!(said.text.contains(&end), "{} {}", said.text, said.complaint);
    }
    bench.end_without_loss();
}

pub(crate) fn tracepath(bench: Bench) {
    traced(bench, MTU);
}

#[test]
fn tracepath_finds_the_largest_packet_of_small_links() {
    for mtu in [1280, 576] {
        inside(move || {
            if let Some(bench) = Bench::with_mtu(Kind::Tap, mtu) {
                traced(bench, mtu);
            }
        });
    }
}
