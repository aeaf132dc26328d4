//! SI6's IPv6 toolkit (Debian's `ipv6toolkit`): forged neighbour, router and error messages,
//! redirects and fragments, in bursts of a second's worth.
//!
//! These tools give up where the kernel makes them wait, so they are held to what a burst has. Not
//! here: `rs6`, which crashes by itself in this version (2.0), `flow6`, with UDP packets of a
//! length of 0 and TCP packets without a listener yet, `udp6` and `tcp6`, which fill any ring and
//! stop where they are paced, and `icmp6` and `jumbo6`, which send one packet a second.

use crate::attacks::{Scene, withstand_unpaced};
use crate::command::run;
use crate::link::Kind;
use crate::namespace::{inside, tell};

/// One test a tool.
macro_rules! withstands {
    ($($name:ident = $kind:ident $program:literal $words:literal;)*) => {
        $(#[test] fn $name() { withstand_unpaced(Kind::$kind, $program, $words); })*
    };
}

withstands! {
    na6_of_many_neighbours = Tap
        "na6" "-i eth0 -s fe80::/64 -F 20 -d fd77::2 -t fd77::/64 -T 20 -e -o -c -l -z 1";
    ns6_from_many_neighbours = Packet
        "ns6" "-i eth0 -s fd77::/64 -F 400 -d fd77::2 -t fd77::2 -e -l -z 1";
    ra6_of_many_routers = Tap
        "ra6" "-i eth0 -s fe80::/64 -F 300 -d ff02::1 -t 9000 -f 12 -w 12 -W 4 -e -l -z 1";
    rd6_to_many_routers = Packet
        "rd6" "-i eth0 -s fe80::1 -d fd77::2 -r fd78::/64 -R 20 -t fe80::/64 -T 20 -l -z 1";
    frag6_of_fragments_that_never_end = Tap
        "frag6" "-i eth0 -s fd77::/64 -d fd77::2 -O first -P 400 -F 500 -l -z 1";
}

/// Row 59 of what is guaranteed: the identification of our next fragment cannot be predicted.
#[test]
fn frag6_finds_our_identifications_random() {
    inside(|| {
        let Some(scene) = Scene::set_up(Kind::Tap, None, "") else { return };
        let words = "-i eth0 -d fd77::2 -W";
        let Some(said) = scene.unknown.inside(|| run("frag6", words, b"")) else { return };
        let verdict = said.text.lines().find(|line| line.starts_with("Fragment ID policy"));
        tell(verdict.unwrap_or(&said.complaint));
        assert!(verdict.is_some_and(|line| line.contains("Randomized IDs")), "{}", said.text);
        scene.end();
    });
}
