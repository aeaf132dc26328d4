//! A router under load: its links go down and come back, its interface is deleted, and it ends and
//! begins again: what is lost is counted, nothing stays behind, and the hosts on both sides do
//! nothing to be served again. Over TAP and packet sockets, both families.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::command::ip;
use crate::instance::assert_conserved;
use crate::link::Kind;
use crate::namespace::{inside, pause, until};
use crate::router::{PATIENCE, SIDES, Scene};
use crate::site::Host;

/// At most so many datagrams are sent through the router of each family.
const LOAD: u32 = 1_000_000;
/// How often a link goes down.
const FLAPS: u32 = 5;
/// What a router may hold more than before, in KiB: less than a packet for each flap, many times.
const GROWTH_MAX: u64 = 4096;
/// The host behind it, in both families.
const RIGHT: [&str; 2] = ["10.77.2.2", "fd77:2::2"];
/// The router's own addresses on the left.
const ROUTER: [&str; 2] = ["10.77.1.1", "fd77:1::1"];

/// Datagrams from the left to the right in both families, as fast as the kernel sends, until
/// dropped.
struct Load {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    fn start(from: &Host) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let its_ends = ends.clone();
        // A socket stays in the namespace that it was made in.
        let sockets =
            from.inside(|| ["0.0.0.0:0", "[::]:0"].map(|any| UdpSocket::bind(any).unwrap()));
        let thread = thread::Builder::new().spawn(move || {
            for _ in 0..LOAD {
                for (socket, to) in sockets.iter().zip(RIGHT) {
                    // Refused while the way is gone: what is not sent does not use the load up.
                    if socket.send_to(&[0; 512], (to, 9)).is_err() {
                        pause(Duration::from_millis(1));
                    }
                }
                if its_ends.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        Self { ends, thread: Some(thread.unwrap()) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn forwarded(stat: &Value) -> u64 {
    let count = |name: &str| stat["counters"][name].as_u64().unwrap_or(0);
    count("IpForwDatagrams").min(count("Ip6OutForwDatagrams"))
}

/// Waits until the load passes, in both families.
fn wait_for_load(scene: &Scene) {
    let before = scene.look().map_or(0, |stat| forwarded(&stat));
    let passes = || scene.look().is_some_and(|stat| forwarded(&stat) > before + 500);
    assert!(until(PATIENCE, passes), "{:#}", scene.look().unwrap_or_default());
}

fn assert_passes(scene: &Scene) {
    let [left, _] = &scene.hosts;
    for to in RIGHT {
        assert!(until(PATIENCE, || left.is_answered(to)), "{to} answers");
    }
}

/// Packets dropped for a reason.
fn drops_of(stat: &Value, reason: &str) -> u64 {
    let drops = stat["drops"].as_array().unwrap().iter();
    drops.filter(|drop| drop["reason"] == reason).map(|drop| drop["count"].as_u64().unwrap()).sum()
}

fn flaps(kind: Kind) {
    inside(move || {
        let Some(mut scene) = Scene::new(kind, "") else { return };
        scene.configure();
        assert_passes(&scene);
        let load = Load::start(&scene.hosts[0]);
        wait_for_load(&scene);
        let before = scene.resident();
        for side in SIDES.iter().cycle().take(2 * FLAPS as usize) {
            let interface = side.interface(kind);
            assert!(ip(&format!("link set {interface} down")));
            pause(Duration::from_millis(150));
            assert_conserved(&scene.look().expect("it answers"));
            assert!(ip(&format!("link set {interface} up")));
            wait_for_load(&scene);
        }
        drop(load);
        assert_passes(&scene);
        assert!(!scene.has_ended());
        let stat = scene.look().expect("it answers");
        assert!(drops_of(&stat, "InterfaceDown") > 0, "{:#}", stat["drops"]);
        let after = scene.resident();
        assert!(after <= before + GROWTH_MAX, "{before} KiB, then {after} KiB");
        scene.end();
    });
}

fn deleted(kind: Kind) {
    inside(move || {
        let Some(mut scene) = Scene::new(kind, "") else { return };
        scene.configure();
        assert_passes(&scene);
        let load = Load::start(&scene.hosts[0]);
        wait_for_load(&scene);
        let [_, right] = &SIDES;
        assert!(ip(&format!("link del {}", right.interface(kind))));
        let [left, _] = &scene.hosts;
        for own in ROUTER {
            assert!(until(PATIENCE, || left.is_answered(own)), "{own} answers on the other link");
        }
        let refuses = || scene.look().is_some_and(|stat| drops_of(&stat, "InterfaceDown") > 0);
        assert!(until(PATIENCE, refuses), "{:#}", scene.look().unwrap_or_default()["drops"]);
        drop(load);
        assert!(!scene.has_ended());
        scene.end();
    });
}

fn begins_again(kind: Kind) {
    inside(move || {
        let Some(mut scene) = Scene::new(kind, "") else { return };
        scene.configure();
        for is_killed in [false, true] {
            assert_passes(&scene);
            let load = Load::start(&scene.hosts[0]);
            wait_for_load(&scene);
            let Some(next) = scene.again(is_killed) else { return };
            scene = next;
            wait_for_load(&scene);
            drop(load);
        }
        assert_passes(&scene);
        scene.end();
    });
}

#[test]
fn a_router_forwards_again_after_each_flap_of_its_taps() {
    flaps(Kind::Tap);
}

#[test]
fn a_router_forwards_again_after_each_flap_of_its_cables() {
    flaps(Kind::Packet);
}

#[test]
fn a_router_with_a_tap_deleted_under_load_serves_the_other() {
    deleted(Kind::Tap);
}

#[test]
fn a_router_with_a_cable_deleted_under_load_serves_the_other() {
    deleted(Kind::Packet);
}

#[test]
fn a_router_on_taps_ends_or_is_killed_under_load_and_the_next_one_forwards() {
    begins_again(Kind::Tap);
}

#[test]
fn a_router_on_cables_ends_or_is_killed_under_load_and_the_next_one_forwards() {
    begins_again(Kind::Packet);
}
