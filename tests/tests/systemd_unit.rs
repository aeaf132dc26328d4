//! The unit by which a system runs Floodwall without root.
//!
//! That the three capabilities are enough, and each of them needed, is asserted with a real device
//! in `crates/device/tests/af_xdp.rs`; here: that the unit grants these and no others, and that
//! systemd understands it, where `systemd-analyze` is there to say so.

use std::path::Path;
use std::process::Command;

const CAPABILITIES: &str = "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF";

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd/floodwall@.service");
    std::fs::read_to_string(path).expect("the unit")
}

#[test]
fn the_unit_grants_three_capabilities_and_pinned_memory_to_a_user_of_its_own() {
    let unit = unit();
    let set = |key: &str| {
        let of = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
        unit.lines().filter_map(of).collect::<Vec<_>>()
    };
    assert_eq!(set("AmbientCapabilities"), [CAPABILITIES]);
    assert_eq!(set("CapabilityBoundingSet"), [CAPABILITIES]);
    assert_eq!(set("LimitMEMLOCK"), ["infinity"]);
    assert_eq!(set("DynamicUser"), ["yes"]);
    assert!(set("User").is_empty());
}

#[test]
fn the_unit_checks_first_reloads_and_keeps_instances_apart() {
    let unit = unit();
    let set = |key: &str| {
        let of = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
        unit.lines().find_map(of).unwrap_or_default()
    };
    assert_eq!(set("Type"), "notify");
    assert!(set("ExecStartPre").ends_with("floodwall check /etc/floodwall/%i.toml"));
    let socket = " --socket %t/floodwall/%i/control.sock";
    assert!(set("ExecStart").ends_with(socket) && set("ExecReload").ends_with(socket));
    assert!(set("ExecReload").contains("floodwall reload"));
    assert!(set("ExecStopPost").ends_with("floodwall cleanup %i"));
    assert_eq!(set("RuntimeDirectory"), "floodwall/%i");
}

#[test]
fn the_unit_of_a_guard_grants_what_its_programs_need_and_no_more() {
    let path = "../contrib/systemd/floodwall-guard@.service";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let unit = std::fs::read_to_string(path).expect("the unit");
    let capabilities = "CAP_BPF CAP_NET_ADMIN CAP_PERFMON";
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert!(unit.lines().any(|line| line == format!("{key}={capabilities}")), "{key}");
    }
    assert!(unit.lines().any(|line| line == "DynamicUser=yes"));
    assert!(
        unit.lines()
            .any(|line| line.ends_with("floodwall guard %i --config /etc/floodwall/guard-%i.toml"))
    );
    assert!(unit.lines().any(|line| line == "Type=notify"));
}

#[test]
fn systemd_understands_the_unit() {
    let folder = std::env::temp_dir().join(format!("floodwall-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("floodwall@eth1.service");
    // Verified is also that the command exists, which need not be installed here.
    std::fs::write(&file, unit().replace("/usr/bin/floodwall", "/bin/true")).expect("a file");
    let said = Command::new("systemd-analyze").arg("verify").arg(&file).output();
    let _ = std::fs::remove_dir_all(&folder);
    match said {
        Err(error) => eprintln!("SKIPPED: systemd-analyze: {error}"),
        Ok(said) => {
            let words = String::from_utf8_lossy(&said.stderr);
            let ours: Vec<_> = words.lines().filter(|line| line.contains("floodwall")).collect();
            // The manual page is not installed either.
            let wrong = ours.iter().filter(|line| !line.contains("man floodwall"));
            assert_eq!(wrong.count(), 0, "{words}");
        }
    }
}
