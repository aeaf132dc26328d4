//! `floodwall lab` from outside: exit codes, streams, and where results go.
//!
//! Runs the quick form of a plan: a second or two of counting, no privilege, no network; and of
//! `first-line` half a minute of it, where there is root.
#![cfg(feature = "lab")]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Runs in a folder of its own, which is no checkout of anything.
fn lab(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodwall"));
    command.arg("lab").args(args).current_dir(folder).env("NO_COLOR", "1").output().unwrap()
}

/// A folder of that name for this test run, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("floodwall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The plan with one place changed, as a file.
    fn plan(&self, from: &str, to: &str) -> &'static str {
        let text = include_str!("../../../lab/plans/header-pull.toml");
        assert!(text.contains(from));
        std::fs::write(self.0.join("changed.toml"), text.replace(from, to)).unwrap();
        "changed.toml"
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn claims_that_hold_exit_with_0_and_leave_nothing_behind() {
    let folder = Folder::new("lab-holds");
    let output = lab(&folder.0, &["header-pull", "--quick"]);
    let out = text(&output.stdout);
    assert_eq!(code(&output), 0, "{out}{}", text(&output.stderr));
    assert!(out.contains("Table 1") && out.contains("published") && out.contains("PASS"), "{out}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0);
}

#[test]
fn json_stands_alone_on_standard_output() {
    let folder = Folder::new("lab-json");
    let output = lab(&folder.0, &["header-pull", "--quick", "--json", "--out", "kept"]);
    assert_eq!(code(&output), 0);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["passed"], true);
    assert_eq!(report["metrics"]["routing-header/counted/calls-per-packet"]["median"], 11.0);
    assert!(report["published"].as_array().unwrap().len() >= 3);
    assert!(text(&output.stderr).contains("PASS"));
    for file in ["plan.toml", "report.txt", "report.json", "metrics.csv", "header-lengths.svg"] {
        assert!(folder.0.join("kept").join(file).is_file(), "{file}");
    }
}

#[test]
fn a_claim_that_fails_exits_with_1_and_says_which() {
    let folder = Folder::new("lab-fails");
    let plan = folder.plan("scratch = 2048", "scratch = 16");
    for json in [&[][..], &["--json"]] {
        let output = lab(&folder.0, &[&[plan, "--quick"], json].concat());
        assert_eq!(code(&output), 1, "{}", text(&output.stderr));
        let words = text(if json.is_empty() { &output.stdout } else { &output.stderr });
        assert!(words.contains("FAILS  scratch access loses no packet"), "{words}");
        assert!(words.contains("broken by ") && words.contains("\nFAIL: "), "{words}");
    }
}

#[test]
fn what_cannot_be_run_exits_with_2_and_leaves_standard_output_clean() {
    let folder = Folder::new("lab-cannot");
    let plan = folder.plan("own/nmap-O-v4.pcap", "own/nosuch.pcap");
    for args in [&["nosuch"][..], &["nosuch.toml"], &[plan, "--quick"]] {
        let output = lab(&folder.0, args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(text(&output.stderr).starts_with("floodwall lab: "), "{args:?}");
    }
    let output = lab(&folder.0, &["--dance"]);
    assert_eq!(code(&output), 1, "a usage error is every command's");
}

#[test]
fn list_names_every_plan_with_its_question() {
    let folder = Folder::new("lab-list");
    let output = lab(&folder.0, &["list"]);
    assert_eq!(code(&output), 0);
    let listed = text(&output.stdout);
    for plan in [
        "fib-gc",
        "grace-period",
        "header-pull",
        "route-flood",
        "starvation",
        "syn-flood",
        "udp-flood",
        "xdp-flood",
    ] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{plan} "))), "{listed}");
    }
    let output = lab(&folder.0, &["list", "--json"]);
    let plans: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plans[0]["name"], "fib-gc");
}

/// Held by the one plan that floods: two of them leave each other no core.
static FLOODS: Mutex<()> = Mutex::new(());

/// Every victim answers, by the program itself: the plan runs `floodwall` as processes. As root, in
/// a namespace that the plan makes.
fn every_victim_answers(plan: &str, cases: u64) {
    if std::env::var_os("FLOODWALL_ALONE").is_none_or(|value| value == "0") {
        return println!("skipped: it needs the machine for itself; FLOODWALL_ALONE=1 runs it");
    }
    let _alone = FLOODS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new(&format!("lab-{plan}"));
    let output = lab(&folder.0, &[plan, "--quick", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    if report["metrics"]["ran"]["median"] != 1.0 {
        println!("skipped: {}", text(&output.stderr));
        return;
    }
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let claims = report["claims"].as_array().unwrap();
    let claim = claims.iter().find(|claim| claim["id"] == "some-are-answered").unwrap();
    // Without `nft` one victim is missing.
    let lacks = if text(&output.stderr).contains("SKIPPED synproxy") { 2 } else { 0 };
    assert_eq!(claim["holds"], true, "{claim}");
    assert_eq!(claim["matched"], cases - lacks, "{claim}");
}

/// Two floods, three victims, two families.
#[test]
fn the_quick_form_of_first_line_is_answered_by_every_victim() {
    every_victim_answers("first-line", 12);
}

/// One flood.
#[test]
fn the_quick_form_of_guard_is_answered_by_every_victim() {
    every_victim_answers("guard", 6);
}
