//! The kernel's half of a veth in a namespace of its own: placed, and given back.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing test may panic")]

mod namespace;

use std::process::Command;

use floodwall_device::{DeviceWord, KernelHalf, OpenConfig, Placement, PlacementConfig};
use namespace::{available, drop_capabilities, inside, ip, skip};

/// A veth pair that is up: `ours` and `theirs`.
fn veth() -> bool {
    let made = ip("link add ours type veth peer name theirs")
        && ip("link set ours up")
        && ip("link set theirs up");
    if !made {
        skip("no veth pair in this kernel");
    }
    made
}

/// Whether `ours` joins packets, by another's words; `None` where nobody says.
fn joins() -> Option<bool> {
    let output = Command::new("ethtool").args(["-k", "ours"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find(|line| line.starts_with("generic-receive-offload:"))?;
    Some(line.ends_with("on"))
}

fn take(half: KernelHalf) -> Option<Placement> {
    let config = PlacementConfig { half, core: Some(0) };
    available(Placement::take("ours", &config))
}

/// Notes of interfaces in this thread's namespace.
fn notes() -> usize {
    use std::os::unix::fs::MetadataExt;
    let space = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let Ok(entries) = std::fs::read_dir("/run/floodwall") else { return 0 };
    let is_ours = |name: String| name.starts_with(&format!("placement-{space}-"));
    entries.flatten().filter(|entry| is_ours(entry.file_name().into_string().unwrap())).count()
}

/// What a thread of the kernel is set to: nice value and cores.
fn thread_of(words: &str) -> (i64, String) {
    let number: String =
        words.split('(').nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let behind = stat.rsplit(')').next().unwrap();
    let nice = behind.split_whitespace().nth(16).unwrap().parse().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    (nice, cores.unwrap().trim().to_owned())
}

#[test]
fn the_thread_stands_behind_the_worker_and_is_gone_with_the_device() {
    inside(|| {
        if !veth() {
            return;
        }
        let before = joins();
        for _ in 0..2 {
            let Some(placement) = take(KernelHalf::NapiThread) else { return };
            let report = placement.report().clone();
            assert_eq!(report.place, "napi-thread", "{report:?}");
            assert_eq!(thread_of(&report.words), (19, "0".to_owned()));
            assert!(joins().is_none_or(|joins| joins));
            // A second one leaves it as it stands.
            let other = take(KernelHalf::NapiThread).unwrap();
            assert_eq!(other.report().place, "left");
            drop(other);
            assert_eq!(thread_of(&report.words), (19, "0".to_owned()));
            drop(placement);
            assert_eq!((joins(), notes()), (before, 0));
        }
    });
}

#[test]
fn an_interface_that_vanishes_takes_its_place_with_it() {
    inside(|| {
        if !veth() {
            return;
        }
        let Some(placement) = take(KernelHalf::NapiThread) else { return };
        assert!(ip("link del ours"));
        drop(placement);
        assert_eq!(notes(), 0);
        // The next one of the name is another interface, and starts anew.
        assert!(veth());
        let placement = take(KernelHalf::NapiThread).unwrap();
        assert_eq!(placement.report().place, "napi-thread", "{:?}", placement.report());
    });
}

#[test]
fn without_privileges_it_is_left_and_said() {
    inside(|| {
        if !veth() {
            return;
        }
        let word: DeviceWord = "packet:ours".parse().unwrap();
        let Some(opened) = available(
            word.open(&OpenConfig { kernel_half: KernelHalf::Leave, ..OpenConfig::default() }),
        ) else {
            return;
        };
        assert_eq!(opened.placement.place, "left");
        if !drop_capabilities() {
            return skip("cannot drop capabilities");
        }
        let placement = take(KernelHalf::Auto).unwrap();
        assert_eq!(placement.report().place, "left");
        let said: Vec<_> = placement.report().lacks.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|lack| lack.contains("CAP_NET_ADMIN")), "{said:?}");
        assert_eq!(notes(), 0, "nothing was changed, nothing is left to be undone");
    });
}

#[test]
fn a_tap_has_nothing_to_place_unless_a_bridge_stands_behind_it() {
    inside(|| {
        assert!(Placement::of_tun("no-such-if").words.starts_with("nothing to place: "));
        if !ip("tuntap add dev fwtap mode tap") || !ip("link add fwbr type bridge") {
            return skip("no TAP or no bridge in this kernel");
        }
        assert!(Placement::of_tun("fwtap").words.starts_with("nothing to place: "));
        assert!(ip("link set fwtap master fwbr"));
        let words = Placement::of_tun("fwtap").words;
        assert!(words.contains("port of a bridge"), "{words}");
    });
}
