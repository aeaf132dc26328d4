//! Settings from files and flags: what is read, and every kind of problem with its place.

use std::collections::BTreeSet;

use clap::Parser;
use proptest::prelude::*;

use super::*;
use crate::args::{Cli, Command};
use crate::log::{LogFormat, LogLevel};

const GOOD: &str = r#"cpu = 2
record = "all.pcapng"
socket = "/tmp/fw.sock"

[[interface]]
device = "tap:fw0"
mac = "02:00:00:00:00:02"
mtu = 1500
queues = 2
offload = false
address = ["10.0.0.2/24", "fd00::2/64"]
gateway = ["10.0.0.1", "fe80::1"]

[[interface]]
device = "tun:fw1"
address = ["192.0.2.1/31"]

[[service]]
kind = "udp-echo"
port = 7001
"#;

fn file(text: &str) -> Result<RunSettings, Vec<String>> {
    let judged = file::parse("fw.toml", text.as_bytes())
        .and_then(|settings| validate::validate(&settings).map(|()| settings));
    judged.map_err(|problems| problems.iter().map(SettingProblem::to_string).collect())
}

fn both(text: &str, flags: &[&str]) -> Result<RunSettings, Vec<String>> {
    let cli = Cli::try_parse_from(["floodwall", "run"].iter().chain(flags)).unwrap();
    let Command::Run(args) = cli.command else { panic!("not a run") };
    let judged = file::parse("fw.toml", text.as_bytes()).and_then(|mut settings| {
        flags::lay(&mut settings, &args)?;
        validate::validate(&settings)?;
        Ok(settings)
    });
    judged.map_err(|problems| problems.iter().map(SettingProblem::to_string).collect())
}

#[test]
fn a_good_file_is_read_whole_with_places() {
    let settings = file(GOOD).unwrap();
    assert_eq!(settings.interfaces.len(), 2);
    let first = &settings.interfaces[0];
    assert_eq!(first.device.value.to_string(), "tap:fw0");
    assert_eq!(first.mac.as_ref().unwrap().value.to_string(), "02:00:00:00:00:02");
    assert_eq!(first.mtu.as_ref().unwrap().value, 1500);
    assert_eq!(first.queues.as_ref().unwrap().value, 2);
    assert!(!first.offload.value && settings.interfaces[1].offload.value);
    let addresses: Vec<_> = first.addresses.iter().map(|a| a.value.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.2/24", "fd00::2/64"]);
    assert_eq!(first.addresses[1].place, SettingPlace::File("fw.toml".into(), 11, 27));
    assert_eq!(first.gateways.len(), 2);
    assert_eq!(settings.services[0].value.to_string(), "udp-echo:7001");
    let joined = "udp-echo:7@239.1.2.3,ff02::1234";
    assert_eq!(parse::service(joined).unwrap().to_string(), joined);
    assert_eq!(settings.cpu.unwrap().value, 2);
    assert_eq!(settings.record.unwrap().value, Path::new("all.pcapng"));
}

#[test]
fn the_same_words_as_flags_mean_the_same() {
    let flags = [
        "--device=tap:fw0",
        "--mac=02:00:00:00:00:02",
        "--mtu=1500",
        "--queues=2",
        "--no-offload",
        "--address=10.0.0.2/24",
        "--address=fd00::2/64",
        "--gateway=10.0.0.1",
        "--gateway=fe80::1",
        "--service=udp-echo:7001",
        "--cpu=2",
    ];
    let (from_flags, from_file) = (both("", &flags).unwrap(), file(GOOD).unwrap());
    let values = |i: &InterfaceSettings| {
        let addresses: Vec<_> = i.addresses.iter().map(|a| a.value).collect();
        let gateways: Vec<_> = i.gateways.iter().map(|g| g.value).collect();
        let numbers = (i.mtu.as_ref().map(|m| m.value), i.queues.as_ref().map(|q| q.value));
        (i.device.value.clone(), i.mac.as_ref().map(|m| m.value), numbers, addresses, gateways)
    };
    assert_eq!(values(&from_flags.interfaces[0]), values(&from_file.interfaces[0]));
    assert_eq!(from_flags.services[0].value, from_file.services[0].value);
}

#[test]
fn the_place_of_the_kernels_half_is_read_from_either_and_the_flag_counts() {
    let text = "[[interface]]\ndevice = \"packet:e0\"\nkernel_half = \"leave\"\n";
    let half = |settings: RunSettings| settings.interfaces[0].kernel_half.as_ref().map(|h| h.value);
    assert_eq!(half(file(text).unwrap()), Some(NapiPolicy::Leave));
    let flags = ["--kernel-half=napi-thread"];
    assert_eq!(half(both(text, &flags).unwrap()), Some(NapiPolicy::NapiThread));
    assert_eq!(half(both("", &["--device=packet:e0"]).unwrap()), None);
    assert_eq!(
        half(both("", &["--device=tap:a", "--kernel-half=auto"]).unwrap()),
        Some(NapiPolicy::Auto)
    );
}

#[test]
fn room_for_routes_is_read_from_either() {
    let interface = "[[interface]]\ndevice = \"tap:a\"\n";
    let of = |text: &str, flags: &[&str]| both(&format!("{text}\n{interface}"), flags);
    let room = |settings: RunSettings| settings.routes.map(|routes| routes.value);
    assert_eq!(room(of("", &[]).unwrap()), None);
    assert_eq!(room(of("routes = 1100000", &[]).unwrap()), Some(1_100_000));
    assert_eq!(room(of("routes = 5000", &["--routes=64"]).unwrap()), Some(64));
    assert!(of("routes = 3", &[]).is_err() && of("", &["--routes=99999999"]).is_err());
}

#[test]
fn the_time_for_connections_to_end_is_read_from_either() {
    let interface = "[[interface]]\ndevice = \"tap:a\"\n";
    let of = |text: &str, flags: &[&str]| both(&format!("{text}\n{interface}"), flags);
    let drain = |settings: RunSettings| settings.drain.map(|drain| drain.value.as_secs());
    assert_eq!(drain(of("", &[]).unwrap()), None);
    assert_eq!(drain(of("drain = 30", &[]).unwrap()), Some(30));
    assert_eq!(drain(of("drain = 30", &["--drain=0"]).unwrap()), Some(0));
    assert!(of("drain = -1", &[]).is_err() && of("", &["--drain=86401"]).is_err());
}

#[test]
fn workers_and_their_cores_are_read_from_either() {
    let interface = "[[interface]]\ndevice = \"tap:fw0\"\n";
    let of = |text: &str| file(&format!("{text}\n{interface}")).unwrap();
    assert_eq!(of("").worker_count(), 1);
    assert_eq!(of("workers = 3").worker_count(), 3);
    let settings = of("cores = \"4,0-1\"");
    assert_eq!((settings.worker_count(), settings.cores.unwrap().value), (3, vec![4, 0, 1]));
    let isolate = of("panic = \"isolate\"").on_panic.unwrap().value;
    assert_eq!(isolate, floodwall_dispatch::OnPanic::Isolate);
    assert_eq!(of("panic = \"isolate\"\nworkers = 2").worker_count(), 2, "among several, too");
    assert!(!of("udp_fair_drop = false").udp_fair_drop.unwrap().value);
    let flags = ["--workers=2", "--cores=5,7", "--panic=end"];
    let settings = both(&format!("workers = 9\n{interface}"), &flags).unwrap();
    assert_eq!((settings.worker_count(), settings.cores.unwrap().value), (2, vec![5, 7]));
}

#[test]
fn flags_lie_on_top_of_the_file() {
    let settings = both(GOOD, &["--device=tap:fw0", "--mtu=9000", "--address=10.0.9.2/24"]);
    let settings = settings.unwrap();
    assert_eq!(settings.interfaces.len(), 2);
    let first = &settings.interfaces[0];
    assert_eq!(first.mtu.as_ref().unwrap().value, 9000, "a single value is replaced");
    assert_eq!(first.addresses.len(), 3, "a list grows");
    assert_eq!(first.mac.as_ref().unwrap().value.to_string(), "02:00:00:00:00:02");

    let more = both(GOOD, &["--device=packet:eth7"]).unwrap();
    assert_eq!(more.interfaces.len(), 3, "another device is another interface");

    let one = "[[interface]]\ndevice = \"tun:a\"\n";
    let only = both(one, &["--address=10.0.0.2/24"]).unwrap();
    assert_eq!(only.interfaces[0].addresses.len(), 1, "the only one needs no name");

    let problems = both(GOOD, &["--mtu=1400"]).unwrap_err();
    assert_eq!(
        problems,
        ["--mtu: the file has 2 interfaces, and it is not clear which is meant; \
          name it with --device, as in --device tap:fw0"]
    );
    let problems = both("", &["--address=10.0.0.2/24"]).unwrap_err();
    assert_eq!(
        problems,
        ["--address: there is no interface to apply this to; \
          name it with --device, as in --device tap:fw0"]
    );
}

/// An interface with one more line in it, which is line 3.
fn with(line: &str) -> String {
    format!("[[interface]]\ndevice = \"tap:fw0\"\n{line}\n")
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of every problem")]
fn each_kind_of_bad_file_is_told_with_line_column_key_and_remedy() {
    let tun = |line: &str| format!("[[interface]]\ndevice = \"tun:fw0\"\n{line}\n");
    let packet = |line: &str| format!("[[interface]]\ndevice = \"packet:e0\"\n{line}\n");
    let service = |line: &str| format!("{}\n[[service]]\n{line}\n", with(""));
    let addresses = |list: &str| with(&format!("address = [{list}]"));
    let table: &[(String, &str)] = &[
        // What TOML itself refuses.
        ("cpu = \n".to_owned(), "fw.toml:1:"),
        ("[[interface]\n".to_owned(), "fw.toml:1:"),
        ("cpu = 1\ncpu = 2\n".to_owned(), "fw.toml:2:1: duplicate key"),
        // Unknown and missing keys.
        (
            with("adress = []"),
            "fw.toml:3:1: interface.adress: unknown key; did you mean `address`?",
        ),
        (
            with("addresses = []"),
            "fw.toml:3:1: interface.addresses: unknown key; did you mean `add",
        ),
        (
            with("colour = 1"),
            "fw.toml:3:1: interface.colour: unknown key; the keys here are accept_ra",
        ),
        ("mtu = 3\n".to_owned(), "fw.toml:1:1: mtu: unknown key; the keys here are cores, cpu"),
        ("\n[[interface]]\n".to_owned(), "fw.toml:2:1: interface.device: missing; add device = "),
        (service("port = 1"), "fw.toml:5:1: service.kind: missing; add kind = "),
        (service("kind = \"udp-echo\""), "fw.toml:5:1: service.port: missing; add port = "),
        // Values of another type.
        ("cpu = \"two\"\n".to_owned(), "fw.toml:1:7: cpu: this is a string; write a whole number"),
        (
            "socket = 7\n".to_owned(),
            "fw.toml:1:10: socket: this is an integer; write a text in quot",
        ),
        (
            with("offload = 1"),
            "fw.toml:3:11: interface.offload: this is an integer; write true or f",
        ),
        (
            with("address = \"10.0.0.2/24\""),
            "fw.toml:3:11: interface.address: this is a string, not",
        ),
        (
            "interface = 3\n".to_owned(),
            "fw.toml:1:13: interface: this is an integer; begin each wit",
        ),
        (
            "[interface]\n".to_owned(),
            "fw.toml:1:1: interface: this is a table; begin each with a l",
        ),
        ("cpu = 99999999999999999999\n".to_owned(), "fw.toml:1:7: cpu: the number is far too larg"),
        // Words.
        (
            "[[interface]]\ndevice = \"dpdk:0\"\n".to_owned(),
            "fw.toml:2:10: interface.device: \"dpdk\" is not a kind of device; write tun:NAME",
        ),
        (
            "[[interface]]\ndevice = \"fw0\"\n".to_owned(),
            "fw.toml:2:10: interface.device: \"fw0\" is not a device; write tun:NAME, tap:NAME",
        ),
        (
            "[[interface]]\ndevice = \"tap:a name too long\"\n".to_owned(),
            "fw.toml:2:10: interface.device: \"a name too long\" cannot be an interface's name;",
        ),
        (
            with("mac = \"02:00\""),
            "fw.toml:3:7: interface.mac: \"02:00\" is not a link address; wr",
        ),
        (
            with("mac = \"01:00:5e:00:00:01\""),
            "fw.toml:3:7: interface.mac: 01:00:5e:00:00:01 names no station; use a station's own",
        ),
        (addresses("\"10.0.0.2\""), "fw.toml:3:12: interface.address: 10.0.0.2 lacks its prefix l"),
        (addresses("\"10.0.0.2/33\""), "fw.toml:3:12: interface.address: /33 is not a prefix leng"),
        (
            addresses("\"10.0.0/24\""),
            "fw.toml:3:12: interface.address: \"10.0.0/24\" is not an add",
        ),
        (
            addresses("\"fd00::2/64\", 7"),
            "fw.toml:3:26: interface.address: this is an integer; wri",
        ),
        (
            with("gateway = [\"10.0.0.1/24\"]"),
            "fw.toml:3:12: interface.gateway: \"10.0.0.1/24\" is ",
        ),
        (with("mtu = 67"), "fw.toml:3:7: interface.mtu: 67 cannot be an MTU; use 68 to 65535"),
        (with("mtu = -1"), "fw.toml:3:7: interface.mtu: -1 cannot be an MTU; use 68 to 65535"),
        (with("queues = 0"), "fw.toml:3:10: interface.queues: 0 cannot be a number of queues; use"),
        (
            service("kind = \"sctp-echo\"\nport = 7"),
            "fw.toml:6:8: service.kind: \"sctp-echo\" is not ",
        ),
        (service("kind = \"udp-echo\"\nport = 0"), "fw.toml:7:8: service.port: 0 is not a port th"),
        // What makes no sense together.
        (
            with("mtu = 1279\naddress = [\"fd00::2/64\"]"),
            "fw.toml:3:7: interface.mtu: 1279 is too small for IPv6, which fd00::2/64 needs on \
             this interface; use at least 1280",
        ),
        (
            with("mtu = 65522"),
            "fw.toml:3:7: interface.mtu: 65522 does not fit an Ethernet frame; u",
        ),
        (
            tun("mac = \"02:00:00:00:00:02\""),
            "fw.toml:3:7: interface.mac: a TUN carries no link ad",
        ),
        (
            packet("kernel_half = \"softirq\""),
            "fw.toml:3:15: interface.kernel_half: \"softirq\" is no place for the kernel's hal",
        ),
        (
            with("kernel_half = \"napi-thread\""),
            "fw.toml:3:15: interface.kernel_half: a TUN or TAP has no kernel's half that napi-th",
        ),
        (
            packet("queues = 2"),
            "fw.toml:3:10: interface.queues: a packet socket has no queues to c",
        ),
        (
            addresses("\"10.0.0.2/24\", \"10.0.0.2/16\""),
            "fw.toml:3:27: interface.address: 10.0.0.2 stands on tap:fw0 already; keep one",
        ),
        (
            addresses("\"224.0.0.1/4\""),
            "fw.toml:3:12: interface.address: 224.0.0.1 cannot be a host's address; use one host's",
        ),
        (
            addresses("\"10.0.0.0/24\""),
            "fw.toml:3:12: interface.address: 10.0.0.0 is the name of t",
        ),
        (
            addresses("\"10.0.0.255/24\""),
            "fw.toml:3:12: interface.address: 10.0.0.255 is the netwo",
        ),
        (addresses("\"::1/128\""), "fw.toml:3:12: interface.address: ::1 cannot be a host's addre"),
        (
            with("gateway = [\"10.0.1.1\"]\naddress = [\"10.0.0.2/24\"]"),
            "fw.toml:3:12: interface.gateway: 10.0.1.1 is on no prefix of tap:fw0; use a router \
             inside 10.0.0.0/24",
        ),
        (
            with("gateway = [\"fd00::1\"]\naddress = [\"10.0.0.2/24\"]"),
            "fw.toml:3:12: interface.gateway: fd00::1 is on no prefix of tap:fw0; add an IPv6 add",
        ),
        (
            with("gateway = [\"10.0.0.2\"]\naddress = [\"10.0.0.2/24\"]"),
            "fw.toml:3:12: interface.gateway: 10.0.0.2 is our own address; name the router's",
        ),
        (
            with("\n[[interface]]\ndevice = \"tun:fw0\""),
            "fw.toml:5:10: interface.device: tun:fw0 has the name of tap:fw0; keep one",
        ),
        (
            service("kind=\"udp-echo\"\nport=7\n[[service]]\nkind=\"udp-discard\"\nport=7"),
            "fw.toml:10:6: service.port: port 7 is taken by udp-echo:7; give it a port of its own",
        ),
        (String::new(), "there is no device; name one with --device, as in --device tap:fw0"),
    ];
    for (text, expected) in table {
        let problems = file(text).expect_err(text);
        assert!(problems[0].starts_with(expected), "{text}\n{problems:#?}\nnot: {expected}");
        assert!(problems.iter().all(|problem| problem.contains("; ")), "a remedy: {problems:?}");
    }
}

#[test]
fn each_kind_of_bad_flag_is_told_with_its_name() {
    let table: &[(&[&str], &str)] = &[
        (&["--device=fw0"], "--device: \"fw0\" is not a device; write tun:NAME"),
        (&["--device=tap:a", "--mac=x"], "--mac: \"x\" is not a link address; write six pairs"),
        (&["--device=tap:a", "--mtu=1"], "--mtu: 1 cannot be an MTU; use 68 to 65535"),
        (&["--device=tap:a", "--queues=9"], "--queues: 9 cannot be a number of queues; use 1 to 8"),
        (
            &["--device=packet:a", "--kernel-half=no"],
            "--kernel-half: \"no\" is no place for the kernel's half; write auto, busy-poll, napi-",
        ),
        (
            &["--device=tap:a", "--kernel-half=busy-poll"],
            "--kernel-half: a TUN or TAP has no kernel's half that busy-poll could be; leave it",
        ),
        (&["--device=tap:a", "--cpu=-1"], "--cpu: -1 cannot be a core; use 0 to 1023"),
        (
            &["--device=tap:a", "--workers=0"],
            "--workers: 0 cannot be a number of workers; use 1 to ",
        ),
        (&["--device=tap:a", "--cores=0,x"], "--cores: \"x\" is no core and no range of cores; wr"),
        (&["--device=tap:a", "--cores=3-1"], "--cores: \"3-1\" is no core and no range of cores"),
        (&["--device=tap:a", "--cores=0-3,2"], "--cores: core 2 is named twice; write one core"),
        (&["--device=tap:a", "--cores=0-99"], "--cores: 100 cores are too many; use 64 at most"),
        (&["--device=tap:a", "--cores=0,1024"], "--cores: 1024 cannot be a core; use 0 to 1023"),
        (&["--device=tap:a", "--cores=0,1", "--workers=3"], "--cores: 2 cores for 3 workers; name"),
        (
            &["--device=tap:a", "--cpu=0", "--workers=2"],
            "--cpu: this is the core of an only worker",
        ),
        (&["--device=tap:a", "--cpu=0", "--cores=0"], "--cpu: this is the core of an only worker"),
        (
            &["--device=tap:a", "--panic=never"],
            "--panic: \"never\" is not a policy; write end or is",
        ),
        (&["--device=tap:a", "--service=udp-echo:0"], "--service: 0 is not a port that can be"),
        (&["--device=tap:a", "--service=udp-echo"], "--service: \"udp-echo\" is not a service; wr"),
        (&["--device=tap:a", "--service=echo:7"], "--service: \"echo\" is not a service; the serv"),
        (
            &["--device=tap:a", "--service=udp-echo:7@10.0.0.1"],
            "--service: \"10.0.0.1\" is not a gr",
        ),
        (
            &["--device=tap:a", "--service=udp-echo:7@"],
            "--service: \"\" is not a group; write a mu",
        ),
        (&["--device=tap:a", "--service=udp-echo:x"], "--service: \"x\" is not a port; use a port"),
        (&["--device=tap:a", "--address=x/8"], "--address: \"x/8\" is not an address; write an ad"),
        (&["--device=tap:a", "--gateway=10.0.0.1"], "--gateway: 10.0.0.1 is on no prefix of tap:a"),
        (&[], "there is no device; name one with --device"),
    ];
    for (flags, expected) in table {
        let problems = both("", flags).expect_err(expected);
        assert!(problems[0].starts_with(expected), "{problems:#?}\nnot: {expected}");
    }
}

#[test]
fn all_complaints_come_at_once_in_order_of_their_places() {
    let text = "cpu = -1\n[[interface]]\ndevice = \"x\"\nmtu = 1\nadress = []\n";
    let problems = file(text).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|problem| &problem[..10]).collect();
    assert_eq!(lines, ["fw.toml:1:", "fw.toml:3:", "fw.toml:4:", "fw.toml:5:"]);
}

#[test]
fn columns_count_characters_and_bytes_that_are_no_text_have_a_place() {
    let problems = file("socket = \"äöü\"\ncpu=\"ü\" # ß\n").unwrap_err();
    assert!(problems[0].starts_with("fw.toml:2:5: cpu: "), "{problems:?}");
    let problems = file::parse("fw.toml", b"cpu = 1\n# \xff\n").unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "fw.toml:2:3: this byte is not UTF-8; save the file as UTF-8"
    );
}

#[test]
fn too_many_addresses_and_interfaces_are_refused() {
    let list: Vec<_> = (1..=33).map(|n| format!("\"10.0.{n}.2/24\"")).collect();
    let problems = file(&with(&format!("address = [{}]", list.join(",")))).unwrap_err();
    assert!(problems[0].contains("more than 32 addresses of one family; keep 32"), "{problems:?}");
    let many: String = (0..64).map(|n| format!("[[interface]]\ndevice=\"tun:t{n}\"\n")).collect();
    let problems = file(&many).unwrap_err();
    assert_eq!(problems, ["fw.toml:128:8: interface: 64 interfaces are too many; 63 can be had"]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let problems = load(Some(Path::new("/nonexistent/fw.toml")), &RunArgs::default()).unwrap_err();
    let text = problems[0].to_string();
    assert!(text.starts_with("/nonexistent/fw.toml: cannot be read: "), "{text}");
    assert!(text.ends_with("; name a readable file"), "{text}");
    let problems = load(Some(Path::new("/dev/zero")), &RunArgs::default()).unwrap_err();
    assert!(problems[0].to_string().contains("longer than 1 MiB"));
}

/// Text that is nearly a configuration.
fn almost() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[[interface]]\n".to_owned()),
        Just("[[service]]\n".to_owned()),
        Just("device = \"tap:fw0\"\n".to_owned()),
        Just("kind = \"udp-echo\"\nport = 7\n".to_owned()),
        "(cpu|mtu|mac|address|gateway|port|device|queues|socket) = [-0-9a-f:./\"\\[\\]]{0,20}\n",
        "(address|gateway) = \\[\"[0-9a-f:.]{0,20}/[0-9]{0,3}\"\\]\n",
        "mtu = (0|[1-9][0-9]{0,20})\n",
        "\\PC{0,12}\n",
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = file::parse("x", &bytes).and_then(|settings| validate::validate(&settings));
    }

    #[test]
    fn nothing_that_is_nearly_a_configuration_makes_it_panic(text in almost()) {
        match file(&text) {
            Ok(settings) => prop_assert!(!settings.interfaces.is_empty()),
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| problem.contains("; ")), "{problems:?}");
            }
        }
    }

    #[test]
    fn no_word_makes_it_panic(text in "\\PC{0,40}", number in any::<i64>()) {
        let _ = (parse::device(&text), parse::service(&text), parse::address(&text));
        let _ = (parse::gateway(&text), parse::mac(&text), parse::service_kind(&text));
        let _ = (parse::port(number), parse::mtu(number), parse::queues(number));
        let _ = (parse::cpu(number), parse::kernel_half(&text));
    }
}

#[test]
fn log_and_metrics_are_given_by_the_file_and_by_flags_that_lie_on_top() {
    let text = format!(
        "log_format = \"json\"\nlog_level = \"warn\"\nmetrics = \"127.0.0.1:9100\"\n{GOOD}"
    );
    let values = |settings: RunSettings| {
        let (format, level) = (settings.log_format, settings.log_level);
        let metrics = settings.metrics.map(|given| given.value.to_string());
        (format.map(|given| given.value), level.map(|given| given.value), metrics)
    };
    let given = |text: &str| Some(text.to_owned());
    let of_file = (Some(LogFormat::Json), Some(LogLevel::Warn), given("127.0.0.1:9100"));
    assert_eq!(values(file(&text).unwrap()), of_file);
    let flags =
        ["--device=tap:fw0", "--log-format=text", "--log-level=debug", "--metrics=[::1]:91"];
    let of_flags = (Some(LogFormat::Text), Some(LogLevel::Debug), given("[::1]:91"));
    assert_eq!(values(both(&text, &flags).unwrap()), of_flags);
    assert_eq!(values(file(GOOD).unwrap()), (None, None, None));
    for line in ["log_format = \"xml\"", "log_level = \"loud\"", "metrics = \"9100\""] {
        let problems = file(&format!("{line}\n{GOOD}")).unwrap_err();
        let key = line.split(' ').next().unwrap();
        assert!(problems.len() == 1 && problems[0].contains(&format!("{key}: ")), "{problems:?}");
        assert!(problems[0].contains("; write "), "{problems:?}");
    }
}

#[test]
fn the_cookie_secret_is_named_by_the_file_and_by_the_flag_that_lies_on_top() {
    let text = format!("cookie_secret = \"/etc/fw.secret\"\n{GOOD}");
    let named = |settings: RunSettings| settings.cookie_secret.map(|file| file.value);
    assert_eq!(named(file(&text).unwrap()), Some(PathBuf::from("/etc/fw.secret")));
    let flags = ["--device", "tap:fw0", "--cookie-secret", "other.secret"];
    assert_eq!(named(both(&text, &flags).unwrap()), Some(PathBuf::from("other.secret")));
    assert_eq!(named(file(GOOD).unwrap()), None);
}

/// The keys of the first column of a page's tables.
fn documented(page: &str) -> BTreeSet<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

#[test]
fn the_reference_of_the_configuration_has_every_key_and_no_other() {
    let page = include_str!("../../../../docs/configuration.md");
    assert_eq!(documented(page), file::keys().collect());
}
