//! The table of allowed imports between crates, and the check that the manifests keep it.
//!
//! Called by `cargo run -p xtask -- layers`, by `ci`, and by a test of this crate. The invariant:
//! imports go down the shelves, siblings of one shelf never meet except where the table allows it,
//! and heavy or platform dependencies stand behind the one wall that was built for them.

use std::env;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What one crate of the workspace may import.
struct Rule {
    name: &'static str,
    shelf: u8,
    may: &'static [&'static str],
}

/// Marks a crate that may import everything on shelves 0 to 5.
const SHELVES_0_TO_5: &str = "(shelves 0 to 5)";
/// The shelf of the programs and of the facade that users depend on.
const PROGRAMS: u8 = 6;
/// The shelf of what is outside the product: nothing may import it, it may import anything.
const OUTSIDE: u8 = 7;

/// The workspace, shelf by shelf. Change it together with the picture in ARCHITECTURE.md.
const CRATES: &[Rule] = &[
    rule("base", 0, &[]),
    rule("checksum", 1, &[]),
    rule("sync", 1, &["base"]),
    rule("packet", 1, &["base", "sync", "checksum"]),
    rule("wire", 1, &["base", "checksum"]),
    rule("fair", 2, &["base"]),
    rule("fib", 2, &["base", "sync"]),
    rule("schedule", 2, &["base", "packet"]),
    rule("syncache", 2, &["base", "sync"]),
    rule("ip", 3, &["base", "packet", "wire", "checksum", "fib"]),
    rule("udp", 3, &["base", "packet", "wire", "checksum", "sync"]),
    rule("dhcp", 3, &["base", "wire"]),
    rule("tcp", 3, &["base", "sync", "packet", "wire", "checksum", "fair", "syncache"]),
    rule("remote", 4, &["base", "sync", "packet", "checksum", "udp", "tcp"]),
    rule(
        "stack",
        4,
        &[
            "base", "sync", "packet", "wire", "checksum", "fib", "syncache", "ip", "udp", "dhcp",
            "tcp", "remote",
        ],
    ),
    rule("services", 5, &["base", "udp", "tcp", "stack"]),
    rule("pktgen", 4, &["base", "packet", "wire", "checksum"]),
    rule("bpf", 5, &[]),
    rule("device", 5, &["base", "sync", "packet", "checksum", "bpf"]),
    rule("guard", 5, &["bpf", "device", "syncache"]),
    rule("dispatch", 5, &["base", "sync", "packet", "wire", "schedule", "device"]),
    rule(
        "tokio-sockets",
        5,
        &["base", "sync", "packet", "udp", "tcp", "stack", "device", "dispatch"],
    ),
    rule("world", 5, &["base", "sync", "packet", "wire", "checksum", "schedule", "pktgen"]),
    rule("drill", PROGRAMS, &[SHELVES_0_TO_5]),
    rule("cli", PROGRAMS, &[SHELVES_0_TO_5, "drill", "lab"]),
    rule("floodwall", PROGRAMS, &[SHELVES_0_TO_5]),
    rule("lab", OUTSIDE, &[]),
    rule("testkit", OUTSIDE, &[]),
    rule("tests", OUTSIDE, &[]),
    rule("xtask", OUTSIDE, &[]),
];

/// Dependencies that only the named crates may have, and why.
const WALLS: &[(&str, &[&str], &str)] = &[
    ("libc", &["device", "packet", "sync"], "system interfaces are wrapped where `unsafe` lives"),
    ("tokio", &["tokio-sockets"], "every other crate serves programs without a runtime"),
    ("clap", &["cli"], "only the command parses arguments"),
    ("clap_complete", &["cli"], "only the command parses arguments"),
    ("clap_mangen", &["cli"], "only the command parses arguments"),
];

/// All that the shelves below the shell (0 to 4) may take from outside.
const ENGINES_MAY_USE: &[&str] =
    &["bitflags", "libc", "loom", "serde", "siphasher", "thiserror", "zerocopy"];

/// What the crates that map memory may take besides.
const MAPPING: (&[&str], &[&str]) = (&["packet", "sync"], &["rustix"]);

const fn rule(name: &'static str, shelf: u8, may: &'static [&'static str]) -> Rule {
    Rule { name, shelf, may }
}

/// One package of the workspace, as far as this check cares.
pub(crate) struct Package {
    name: String,
    manifest: String,
    imports: Vec<Import>,
}

struct Import {
    name: String,
    dev: bool,
}

/// Reads the manifests of the workspace at `root` and names every edge that the table forbids.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    Ok(violations(&packages(root)?))
}

/// Reads the members of the workspace and their dependencies from cargo.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot run cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata names no packages")?;
    Ok(packages.iter().map(|package| read_package(package, root)).collect())
}

fn read_package(package: &Value, root: &Path) -> Package {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let manifest = text(&package["manifest_path"]);
    let relative = Path::new(&manifest).strip_prefix(root).unwrap_or(Path::new(&manifest));
    let imports = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    Package {
        name: text(&package["name"]),
        manifest: relative.to_string_lossy().into_owned(),
        imports: imports
            .iter()
            .map(|import| Import {
                name: text(&import["name"]),
                dev: import["kind"].as_str() == Some("dev"),
            })
            .collect(),
    }
}

/// Every broken rule of a set of packages, one line each.
fn violations(packages: &[Package]) -> Vec<String> {
    let mut found = Vec::new();
    for package in packages {
        let Some(own) = rule_of(&package.name) else {
            found.push(format!(
                "{} ({}): not in the table, so its shelf is unknown. Remedy: give it a row in \
                 CRATES of xtask/src/layers.rs, with the reason in the commit.",
                package.name, package.manifest
            ));
            continue;
        };
        for import in &package.imports {
            let reason = match rule_of(&import.name) {
                Some(other) => refuse_inside(own, other, import.dev),
                None => refuse_outside(own, import),
            };
            if let Some(reason) = reason {
                let kind = if import.dev { "dev-dependency" } else { "dependency" };
                found.push(format!(
                    "{} -> {} ({kind}, {}): {reason}",
                    package.name, import.name, package.manifest
                ));
            }
        }
    }
    found
}

/// The row of a package, whether it is called by its folder's name or with the project's prefix.
fn rule_of(package: &str) -> Option<&'static Rule> {
    let short = package.strip_prefix("floodwall-").unwrap_or(package);
    CRATES.iter().find(|rule| rule.name == short)
}

/// Why `own` must not import `other`, if it must not.
fn refuse_inside(own: &Rule, other: &Rule, dev: bool) -> Option<String> {
    if own.shelf == OUTSIDE || may_import(own, other) {
        return None;
    }
    if dev && (other.shelf < own.shelf || other.name == "testkit" || other.name == own.name) {
        return None;
    }
    let Rule { name, shelf, .. } = own;
    if other.shelf == OUTSIDE {
        return Some(format!(
            "{} is outside the product and must never be part of it. Remedy: move what {name} \
             needs down into a crate below it, or the code that needs it out of {name}.",
            other.name
        ));
    }
    let allowed = if own.may.is_empty() { "nothing".to_owned() } else { own.may.join(", ") };
    let where_to = if other.shelf > *shelf {
        "this edge goes up. Remedy: pass the thing in as an argument or a type parameter, or move \
         the shared word down"
    } else if other.shelf == *shelf {
        "siblings do not meet. Remedy: let the crate above both join them, or move the shared word \
         down"
    } else {
        "a wall keeps the two apart. Remedy: go through one of the crates that it may import"
    };
    Some(format!(
        "{name} stands on shelf {shelf} and may import {allowed}; {} stands on shelf {}: \
         {where_to}.",
        other.name, other.shelf
    ))
}

fn may_import(own: &Rule, other: &Rule) -> bool {
    let all_shelves = own.may.contains(&SHELVES_0_TO_5) && other.shelf < PROGRAMS;
    all_shelves || own.may.contains(&other.name)
}

/// Why `own` must not use this crate of the registry, if it must not.
fn refuse_outside(own: &Rule, import: &Import) -> Option<String> {
    if own.shelf == OUTSIDE || import.dev {
        return None;
    }
    if let Some((_, homes, why)) = WALLS.iter().find(|(name, ..)| *name == import.name) {
        return (!homes.contains(&own.name)).then(|| {
            format!("only {} may use it: {why}. Remedy: call that crate.", homes.join(", "))
        });
    }
    let (mappers, extra) = MAPPING;
    let mapping = mappers.contains(&own.name) && extra.contains(&import.name.as_str());
    let engine = own.shelf < 5;
    let known = ENGINES_MAY_USE.contains(&import.name.as_str());
    (engine && !known && !mapping).then(|| {
        format!(
            "{} is below the shell and may use only {} from outside. Remedy: do without, or move \
             the code into the shell; if the crate belongs here, say so in ENGINES_MAY_USE of \
             xtask/src/layers.rs.",
            own.name,
            ENGINES_MAY_USE.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, imports: &[(&str, bool)]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            imports: imports
                .iter()
                .map(|&(name, dev)| Import { name: name.to_owned(), dev })
                .collect(),
        }
    }

    /// The one complaint about one edge, or nothing.
    fn verdict(from: &str, to: &str, dev: bool) -> Option<String> {
        let found = violations(&[package(from, &[(to, dev)])]);
        assert!(found.len() <= 1, "{found:?}");
        found.into_iter().next()
    }

    #[test]
    fn an_upward_edge_is_reported_with_its_remedy() {
        let line = verdict("floodwall-udp", "floodwall-stack", false).unwrap();
        for part in ["floodwall-udp -> floodwall-stack", "goes up", "Remedy", "shelf 3"] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn siblings_never_meet_not_even_in_tests() {
        assert!(verdict("floodwall-udp", "floodwall-ip", false).is_some());
        assert!(verdict("floodwall-udp", "floodwall-ip", true).is_some());
    }

    #[test]
    fn downward_edges_hold_for_tests_and_for_the_table_otherwise() {
        assert!(verdict("floodwall-udp", "floodwall-wire", false).is_none());
        assert!(verdict("floodwall-udp", "floodwall-fib", false).is_some());
        assert!(verdict("floodwall-udp", "floodwall-fib", true).is_none());
    }

    #[test]
    fn the_product_reaches_nothing_outside_it() {
        for outside in ["floodwall-testkit", "floodwall-tests", "floodwall-lab", "xtask"] {
            assert!(verdict("floodwall-stack", outside, false).is_some(), "{outside}");
            let in_tests = verdict("floodwall-stack", outside, true);
            assert_eq!(in_tests.is_none(), outside == "floodwall-testkit", "{outside}");
        }
        assert!(verdict("floodwall-cli", "floodwall-lab", false).is_none());
        assert!(verdict("floodwall-testkit", "floodwall-stack", false).is_none());
    }

    #[test]
    fn walls_stand_round_foreign_crates() {
        for (from, to, allowed) in [
            ("floodwall-device", "libc", true),
            ("floodwall-packet", "libc", true),
            ("floodwall-dispatch", "libc", false),
            ("floodwall-dispatch", "tokio", false),
            ("floodwall-tokio-sockets", "tokio", true),
            ("floodwall-drill", "clap", false),
            ("floodwall-cli", "clap", true),
            ("floodwall-stack", "getrandom", false),
            ("floodwall-dispatch", "getrandom", true),
            ("floodwall-packet", "rustix", true),
            ("floodwall-ip", "rustix", false),
        ] {
            assert_eq!(verdict(from, to, false).is_none(), allowed, "{from} -> {to}");
        }
    }

    #[test]
    fn a_crate_without_a_row_is_reported() {
        let found = violations(&[package("floodwall-extra", &[])]);
        assert!(found.len() == 1 && found[0].contains("not in the table"), "{found:?}");
    }

    #[test]
    fn the_table_itself_goes_down() {
        let inside = ["packet -> sync", "packet -> checksum", "wire -> checksum"];
        let siblings = [
            "stack -> remote",
            "dispatch -> device",
            "device -> bpf",
            "guard -> bpf",
            "guard -> device",
            "tokio-sockets -> device",
            "tokio-sockets -> dispatch",
            "cli -> drill",
        ];
        for own in CRATES {
            for name in own.may.iter().filter(|&&name| name != SHELVES_0_TO_5) {
                let other = rule_of(name).unwrap();
                let edge = format!("{} -> {name}", own.name);
                let known = inside.contains(&&*edge) || siblings.contains(&&*edge);
                assert!(other.shelf < own.shelf || known || edge == "cli -> lab", "{edge}");
            }
        }
    }

    #[test]
    fn the_workspace_keeps_the_table() {
        let found = check(&crate::root()).unwrap();
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
