//! Each rule of tidy, broken once and kept once.

use super::*;

fn complaints(path: &str, text: &str) -> Vec<String> {
    let source = Source::new(path, text.to_owned());
    let mut out = Vec::new();
    shape(&source, &mut out);
    danger(&source, &mut out);
    printing(&source, &mut out);
    words(&source, &mut out);
    provenance(&source, &mut out);
    out
}

/// The file breaks exactly one rule, and the complaint names it.
fn breaks(path: &str, text: &str, what: &str) {
    let found = complaints(path, text);
    assert!(found.len() == 1 && found[0].contains(what), "{path}: {text}: {found:?}");
}

fn keeps(path: &str, text: &str) {
    let found = complaints(path, text);
    assert!(found.is_empty(), "{path}: {text}: {found:?}");
}

fn empty_report() -> Report {
    Report { files: 0, complaints: Vec::new(), notes: Vec::new() }
}

const FILE: &str = "crates/udp/src/input.rs";

#[test]
fn a_file_says_what_it_is_and_stays_small() {
    keeps(FILE, "//! Datagrams in.\nfn input() {}\n");
    breaks(FILE, "// Datagrams in.\n", "does not open");
    breaks(FILE, &format!("//! {}\n", "x".repeat(97)), "101 columns");
    keeps(FILE, &format!("//! {}\n", "\u{e9}".repeat(96)));
    keeps(FILE, &format!("//! https://example.net/{}\n", "x".repeat(97)));
    breaks(FILE, &format!("//! Long.\n{}", "\n".repeat(900)), "901 lines");
}

#[test]
fn danger_stays_in_its_crates_and_says_why() {
    let reasoned = "//! A.\n// SAFETY: it has no other owner.\nunsafe { x() }\n";
    keeps("crates/sync/src/qsbr.rs", reasoned);
    breaks(FILE, reasoned, "outside");
    breaks("crates/sync/src/a.rs", "//! A.\nunsafe { x() }\n", "without a `SAFETY:`");
    breaks("crates/sync/src/a.rs", "//! A.\nunsafe impl Send for A {}\n", "without");
    keeps("crates/sync/src/a.rs", "//! A.\npub unsafe fn x() {}\n");
    keeps(FILE, "//! unsafe in words.\nconst A: &str = \"unsafe\"; // unsafe\n");
    let far = format!("//! A.\n// SAFETY: a.\n{}unsafe {{ x() }}\n", "// more\n".repeat(9));
    keeps("crates/packet/src/a.rs", &far);
    let gap = format!("//! A.\n// SAFETY: a.\n{}unsafe {{ x() }}\n", "x();\n".repeat(6));
    breaks("crates/packet/src/a.rs", &gap, "without");
}

#[test]
fn a_baseline_says_where_it_comes_from() {
    let file = "lab/src/baselines/old.rs";
    let whole = "//! Old.\n//!\n//! Models: X 1.\n//! Simplified: no.\n//! Serves: a claim.\n";
    keeps(file, whole);
    for part in ["Models:", "Simplified:", "Serves:"] {
        breaks(file, &whole.replace(part, "It"), part);
    }
    keeps("lab/src/run.rs", "//! No baseline.\n");
}

#[test]
fn every_other_crate_forbids_danger() {
    breaks("crates/udp/src/lib.rs", "//! A.\n", "forbid(unsafe_code)");
    keeps("crates/udp/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n");
    keeps("crates/sync/src/lib.rs", "//! A.\n");
    breaks("testkit/src/lib.rs", "//! A.\n", "deny(unsafe_code)");
    keeps("testkit/src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n");
    breaks("xtask/src/main.rs", "//! A.\n// #![forbid(unsafe_code)]\n", "forbid");
}

#[test]
fn libraries_do_not_print() {
    breaks(FILE, "//! A.\nfn f() { println!(); }\n", "`println!`");
    breaks("crates/cli/src/show.rs", "//! A.\nfn f() { dbg!(1); }\n", "`dbg!`");
    keeps("crates/cli/src/show.rs", "//! A.\nfn f() { println!(); }\n");
    keeps(FILE, "//! A.\n#[cfg(test)]\nmod tests {\n    fn f() { eprintln!(); }\n}\n");
    keeps("crates/udp/benches/push.rs", "//! A.\nfn f() { println!(); }\n");
}

#[test]
fn the_product_uses_the_glossary() {
    breaks(FILE, "//! A.\nstruct Mbuf;\n", "`mbuf`");
    keeps(FILE, "//! The paper: mbuf issues in 4.4BSD.\n");
    breaks(FILE, "//! A.\nfn free_skb() {}\n", "`skb`");
    breaks(FILE, "//! A.\nfn f(dst: u32) {}\n", "`dst`");
    keeps(FILE, "//! The dst.\nfn f(dst_addr: u32) {}\n");
    breaks(FILE, "//! A.\nfn f() { todo!() }\n", "`todo`");
    breaks("crates/udp/src/utils.rs", "//! A.\n", "has no meaning");
    breaks(FILE, "//! A.\nmod utils {}\n", "has no meaning");
    keeps("lab/src/experiments/old.rs", "//! The mbuf of 1998.\n");
}

const REASONS: &str = "//! A.\nmacro_rules! drop_reasons {\n    ($($variant:ident = \
                       $text:literal,)*) => {\n        pub enum DropReason {\n            $(#[doc \
                       = $text] $variant,)*\n        }\n    };\n}\n\ndrop_reasons! {\n    NoRoute \
                       = \"No Route.\",\n    UdpNoPort = \"x\",\n    UdpChecksum = \"x\",\n}\n";

#[test]
fn both_forms_of_the_reasons_are_read() {
    let code = Source::new(DROP_REASONS, REASONS.to_owned()).code;
    assert_eq!(variants(&code), ["NoRoute", "UdpNoPort", "UdpChecksum"]);
    let plain = "//! A.\npub enum DropReason {\n    /// No Route.\n    NoRoute,\n    Other,\n}\n";
    let code = Source::new(DROP_REASONS, plain.to_owned()).code;
    assert_eq!(variants(&code), ["NoRoute", "Other"]);
}

#[test]
fn a_reason_without_a_test_is_reported() {
    let sources = [
        Source::new(DROP_REASONS, REASONS.to_owned()),
        Source::new(
            FILE,
            "//! A.\nfn f() { drop(DropReason::UdpNoPort) }\n#[cfg(test)]\nmod tests {\n    fn g() \
             { is(DropReason::NoRoute) }\n}\n"
                .to_owned(),
        ),
        Source::new("tests/sim/a.rs", "//! A.\nfn h() { of(\"UdpChecksum\") }\n".to_owned()),
    ];
    let mut report = empty_report();
    reasons_have_tests(&sources, &[], &mut report);
    assert_eq!(report.complaints.len(), 1, "{:?}", report.complaints);
    assert!(report.complaints[0].contains("of 3 reasons 1 are named by no test: UdpNoPort."));
    let mut report = empty_report();
    reasons_have_tests(&sources, &["UdpNoPort", "NoRoute"], &mut report);
    assert!(report.complaints.is_empty(), "{:?}", report.complaints);
    assert!(report.notes.len() == 1 && report.notes[0].contains("NoRoute"));
    let mut report = empty_report();
    reasons_have_tests(&sources, &["UdpNoPort", "Gone"], &mut report);
    assert!(report.complaints.len() == 1 && report.complaints[0].contains("no such thing"));
}

#[test]
fn a_bound_that_the_threats_do_not_name_is_reported() {
    let text = "//! A.\n/// B.\npub const BURST_MAX: usize = 64;\npub const CHUNKS_MAX: u8 = 1;\n";
    let sources = [Source::new(LIMITS, text.to_owned())];
    let mut report = empty_report();
    limits_are_threats(&sources, "| `BURST_MAX` | x |", &[], &mut report);
    assert!(report.complaints.len() == 1 && report.complaints[0].contains("CHUNKS_MAX"));
}

#[test]
fn a_test_that_a_table_names_and_nothing_wrote_is_reported() {
    let test = "//! A.\n#[cfg(test)]\nmod tests {\n    fn what_is_there_is_shown() {}\n}\n";
    let sources = [Source::new(FILE, test.to_owned())];
    let table = "| case | test |\n|---|---|\n| a | `x::what_is_there_is_shown`, `_ipv6` |\n\
                 | b | `tests/a.rs`: `what_is_gone_is_shown` |\n\n`what_is_no_table_counts_not`\n\
                 | row | case |\n|---|---|\n| a | `what_is_no_test_counts_not` |\n";
    let mut found = Vec::new();
    named_tests_exist(&sources, &[("docs/a.md".to_owned(), table.to_owned())], &mut found);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("docs/a.md:4:") && found[0].contains("what_is_gone_is_shown"));
}

#[test]
fn the_workspace_is_tidy() {
    let report = check(&crate::root()).unwrap();
    assert!(report.complaints.is_empty(), "{}", report.complaints.join("\n"));
}
