//! `floodwall cost` from outside: one round of everything, exit codes, and a table that parses.
#![cfg(feature = "lab")]
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::process::{Command, Output};

fn floodwall(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_floodwall")).args(args).env("NO_COLOR", "1").output().unwrap()
}

#[test]
fn a_table_is_measured_told_and_written_with_the_machine_and_the_day() {
    let name = format!("floodwall-cost-{}.txt", std::process::id());
    let path = std::env::temp_dir().join(name);
    let output = floodwall(&["cost", "--json", "--rounds", "1", "--write", path.to_str().unwrap()]);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // Whether one round of this machine was a quiet one is not guaranteed.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["costs"]["bursts"].as_array().unwrap().len(), 17);
    assert!(json["machine"]["date"].is_string());
    for word in ["# machine: ", "# kernel: ", "# date: 20", "\nheader ", "\nrest ", "\ntriage "] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_cannot_be_written_or_read_ends_with_2_and_says_so() {
    for args in [
        &["cost", "--rounds", "1", "--write", "/nonexistent/costs.txt"][..],
        &["drill", "--sim", "--costs", "/nonexistent/costs.txt"],
        &["drill", "--costs", "costs.txt"],
        &["cost", "--rounds", "0"],
    ] {
        let output = floodwall(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(!said.is_empty());
    }
}
