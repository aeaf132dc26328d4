//! The stack as an engine, in memory and in virtual time: one module a subject.
//!
//! One program, because each one more is compiled and linked with the whole stack. A subject that
//! must be alone in its process, or that has a folder of modules, is a program of its own
//! (`Cargo.toml`).

mod addresses;
mod advertising;
mod captures;
mod configuration;
mod destinations;
mod drops_fragments;
mod drops_ip;
mod drops_ipv6_headers;
mod drops_link;
mod drops_out;
mod drops_upper;
mod first_line;
mod forwarding;
mod fragments;
mod host_share;
mod kept_gateways;
mod multicast;
mod ping;
mod predicted;
mod raw;
mod reclaim;
mod rx_coalesce;
mod shards;
mod shards_sim;
mod shards_threads;
mod silent_gateways;
mod sim;
mod systemd_unit;
mod tcp_path;
mod tcp_segments;
mod traffic_class;
mod triage;
mod two_hosts;
mod udp_flood;
mod wants;
mod ways_back;
mod worst_cost;

/// A file that is named nowhere would never run.
#[test]
fn each_file_of_the_folder_is_a_module_here_or_a_program_of_its_own() {
    let (here, programs) = (include_str!("engine.rs"), include_str!("../Cargo.toml"));
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).expect("tests");
    for entry in folder {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let is_module = here.lines().any(|line| line == format!("mod {name};"));
        let is_program = programs.lines().any(|line| line == format!("name = \"{name}\""));
        assert!(is_module || is_program, "{name} is in neither engine.rs nor Cargo.toml");
    }
}
