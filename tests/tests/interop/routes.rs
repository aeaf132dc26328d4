//! `floodwall route` beside `ip route`: one script for both, and the same JSON; the kernel's table
//! taken over; long lists, a fault in a late line, and a table that is full.
//!
//! The kernel's half is a host with an interface of our name and addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::command::{Said, ip, run, shown_by_ip};
use crate::instance::{Folder, Instance};
use crate::link::{Kind, MTU, NAME};
use crate::namespace::{inside, is_deep, tell};
use crate::site::{ETH, Host, Site};

/// The commands for both, and whether they apply them.
const SCRIPT: &[(&str, bool)] = &[
    ("-4 add 192.0.2.0/24 via 10.77.0.1", true),
    ("-4 add 192.0.2.0/24 via 10.77.0.1", false),
    ("-4 add 192.0.2.128/25 via 10.77.0.9 metric 50 proto static", true),
    ("-4 replace 192.0.2.128/25 via 10.77.0.1 metric 50", true),
    ("-4 add 192.0.2.1/24 via 10.77.0.1", false),
    ("-4 add 198.51.100.0/24 dev fw0", true),
    ("-4 add 198.51.100.7 via 10.77.0.1 src 10.77.0.2", true),
    ("-4 add 198.51.100.8 via 10.77.0.1 dev fw0 proto static", true),
    ("-4 del 198.51.100.8", true),
    ("-4 del 198.51.100.99", false),
    ("-4 add blackhole 203.0.113.0/26", true),
    ("-4 add unreachable 203.0.113.64/26", true),
    ("-4 add prohibit 203.0.113.128/25 metric 9", true),
    ("-4 add 10.1.0.0/16 via 172.31.0.1", false),
    ("-4 add 10.2.0.0/16 dev fw9", false),
    ("-4 add default nexthop via 10.77.0.1 dev fw0 weight 3 nexthop via 10.77.0.9 dev fw0", true),
    ("-4 add 100.64.0.0/10 via 10.77.0.1 table 7", true),
    ("-6 add 2001:db8::/32 via fd77::1", true),
    ("-6 add 2001:db8::/32 via fd77::1", false),
    ("-6 add 2001:db8:1::/48 dev fw0 metric 50 proto static", true),
    ("-6 add 2001:db8:2::/48 via fd77::1 expires 600", true),
    ("-6 replace 2001:db8:2::/48 via fd77::9 expires 900", true),
    ("-6 add unreachable 2001:db8:3::/48", true),
    ("-6 add default via fe80::1 dev fw0", true),
    ("-6 add 2001:db8:4::1 via fd77::1", true),
    ("-6 del 2001:db8:4::1", true),
    ("-6 del 2001:db8:5::/48", false),
];

const FLAGS: &str = "--address 10.77.0.2/24 --address fd77::2/64 --accept-ra=false";

/// A host of the kernel's with our interface's name and addresses.
fn kernel() -> Host {
    let host = Host::at("k0", "k1", MTU);
    assert!(ip("link set k0 up"));
    host.inside(|| {
        assert!(ip(&format!("link set {ETH} down")) && ip(&format!("link set {ETH} name {NAME}")));
        assert!(ip(&format!("link set {NAME} up")));
        assert!(ip(&format!("addr add 10.77.0.2/24 dev {NAME}")));
        assert!(crate::link::give_v6("fd77::2/64", NAME));
    });
    host
}

/// Passes one line of the script to the kernel; returns whether it is applied.
fn told_kernel(host: &Host, line: &str) -> bool {
    let (family, words) = line.split_once(' ').unwrap();
    host.inside(|| ip(&format!("{family} route {words}")))
}

/// Routes as listed in JSON, by their distinguishing fields; without those that come of the
/// addresses.
fn by_name(json: &str) -> BTreeMap<String, Value> {
    let all: Vec<Value> = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let theirs = all.into_iter().filter(|route| route["protocol"] != "kernel");
    theirs.map(|route| (format!("{} {}", route["dst"], route["metric"]), route)).collect()
}

/// That both show the same routes, with the same values under the keys that they share; and that
/// they share those which say what a route does.
fn assert_same(ours: &str, kernels: &str, with_lifetimes: bool) -> usize {
    let (ours, kernels) = (by_name(ours), by_name(kernels));
    let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&kernels));
    for (ours, kernels) in ours.values().zip(kernels.values()) {
        let what = format!("{ours}\n{kernels}");
        let nowhere = kernels.get("type").is_some();
        let mut keys = vec!["dst", "type", "gateway", "protocol", "prefsrc", "metric", "nexthops"];
        // The kernel lists blackhole routes with `lo`; and `ip` leaves out the requested interface.
        let named = kernels.get("dev").is_some() && !nowhere;
        keys.extend(["dev"].iter().filter(|_| named));
        for key in keys {
            assert_eq!(ours.get(key), kernels.get(key), "{key}: {what}");
        }
        for key in ["scope", "flags", "pref", "table"] {
            if let (Some(a), Some(b)) = (ours.get(key), kernels.get(key)) {
                assert_eq!(a, b, "{key}: {what}");
            }
        }
        let left = |route: &Value| route.get("expires").and_then(Value::as_i64);
        match (left(ours), left(kernels)) {
            (Some(a), Some(b)) => assert!((a - b).abs() <= 10, "{what}"),
            (a, b) => assert!(!with_lifetimes || a == b, "{what}"),
        }
    }
    ours.len()
}

fn good(said: &Said) -> &str {
    assert!(said.status.success(), "{} {}", said.text, said.complaint);
    &said.text
}

#[test]
fn one_script_drives_the_kernel_and_us_and_both_show_the_same() {
    inside(|| {
        let site = Site::new(MTU);
        let Some(instance) = Instance::start(&site, Kind::Tap, FLAGS) else { return };
        let host = kernel();
        for (line, works) in SCRIPT {
            let said = instance.route(line);
            assert_eq!(told_kernel(&host, line), *works, "the kernel: {line}");
            assert_eq!(said.status.success(), *works, "{line}: {}", said.complaint);
            assert_eq!(said.complaint.is_empty(), *works, "{line}: {}", said.complaint);
        }
        for (words, least) in [("-4", 8), ("-6", 5), ("-4 show table 7", 1), ("-4 show dev fw0", 4)]
        {
            let (family, filter) = words.split_once(' ').unwrap_or((words, "show"));
            let kernels = host.inside(|| shown_by_ip(&format!("{family} -j route {filter}")));
            let ours = instance.route(&format!("{family} -j {filter}"));
            let same = assert_same(good(&ours), &kernels, true);
            assert!(same >= least, "{words}: {same}");
        }
        // The kernel's whole table, taken over by an instance that has none yet.
        instance.end();
        let Some(instance) = Instance::start(&site, Kind::Tap, FLAGS) else { return };
        let said = host.inside(|| instance.route("import"));
        good(&said);
        for family in ["-4", "-6"] {
            let kernels = host.inside(|| shown_by_ip(&format!("{family} -j route")));
            let ours = instance.route(&format!("{family} -j show"));
            let same = assert_same(good(&ours), &kernels, false);
            tell(&format!("{same} routes taken over of {family}"));
        }
        instance.end();
    });
}

/// The vendored list of prefixes of the Internet: every 50th, or where tests may last all.
fn prefixes() -> Option<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/bgp/prefixes.txt.gz");
    let said = run("zcat", path, b"")?;
    let step = if is_deep() { 1 } else { 50 };
    Some(said.text.lines().step_by(step).map(str::to_owned).collect())
}

#[test]
fn long_lists_are_loaded_whole_or_not_at_all() {
    inside(|| {
        let Some(prefixes) = prefixes() else { return };
        let v4 = prefixes.iter().filter(|prefix| !prefix.contains(':')).count();
        let (site, folder) = (Site::new(MTU), Folder::new());
        // Room for the list, four fifths of it once more, and what the addresses make.
        let room = v4 + v4 * 4 / 5 + 16;
        let flags = format!("{FLAGS} --routes {room}");
        let Some(instance) = Instance::start(&site, Kind::Tap, &flags) else { return };
        let file = |name: &str, text: &str| {
            let path = folder.file(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let list = file("list", &prefixes.join("\n"));
        for (via, lines) in [("10.77.0.1", v4), ("fd77::1", prefixes.len() - v4)] {
            let said = instance.route(&format!("-j load {list} via {via}"));
            let answer: Value = serde_json::from_str(good(&said)).unwrap();
            assert_eq!((&answer["applied"], &answer["refused"]), (&lines.into(), &0.into()));
            assert!(lines < 50_000 || said.complaint.contains("lines sent"), "{}", said.complaint);
            tell(&format!("{lines} prefixes via {via}: {}", said.complaint.trim()));
        }
        let some = prefixes.iter().filter(|prefix| !prefix.contains(':')).step_by(v4 / 50);
        for prefix in some {
            let said = instance.route(&format!("get {}", prefix.split('/').next().unwrap()));
            assert!(good(&said).contains("via 10.77.0.1"), "{prefix}: {}", said.text);
        }

        // Much of it again, over another router: what is wrong in a late line undoes the rest. Of
        // the whole list that line is number 700,000.
        let count = if is_deep() { 699_999 } else { v4 / 3 };
        let mut batch = String::new();
        let v4s = || prefixes.iter().filter(|prefix| !prefix.contains(':'));
        for prefix in v4s().take(count) {
            let _ = writeln!(batch, "add {prefix} via 10.77.0.9 metric 7");
        }
        let first = v4s().next().unwrap();
        let added = |via: &str| {
            let said = instance.route(&format!("-4 -j show via {via}"));
            serde_json::from_str::<Vec<Value>>(good(&said)).unwrap().len()
        };
        for late in ["add 192.0.2.0/99 via 10.77.0.9", &format!("add {first} via 10.77.0.1")] {
            let path = file("batch", &format!("{batch}{late}\n"));
            let said = instance.route(&format!("-batch {path}"));
            assert!(!said.status.success());
            let line = format!("line {}:", count + 1);
            assert!(said.complaint.contains(&line), "{}", said.complaint);
            assert!(said.complaint.contains("nothing was applied"), "{}", said.complaint);
            assert_eq!(added("10.77.0.9"), 0);

            let said = instance.route(&format!("-force -batch {path}"));
            assert!(!said.status.success());
            let told = format!("{count} lines were applied, 1 were not");
            assert!(said.complaint.contains(&line), "{}", said.complaint);
            assert!(said.complaint.contains(&told), "{}", said.complaint);
            assert_eq!(added("10.77.0.9"), count.min(50_000));
            let undone = file("undo", &batch.replace("add ", "del "));
            good(&instance.route(&format!("-batch {undone}")));
            assert_eq!(added("10.77.0.9"), 0);
        }

        // There is no room for the list a second time: it is refused, and the table as before.
        let twice: String =
            v4s().map(|prefix| format!("add {prefix} via 10.77.0.9 metric 8\n")).collect();
        let said = instance.route(&format!("-batch {}", file("twice", &twice)));
        assert!(!said.status.success());
        assert!(said.complaint.contains("nothing was applied"), "{}", said.complaint);
        assert!(said.complaint.contains("line "), "{}", said.complaint);
        tell(said.complaint.trim());
        assert_eq!(added("10.77.0.9"), 0);
        instance.end();
    });
}
