//! The figures of lab/README.md are those of the kept results that it names: generated, not typed.
//! Where they differ, the failure prints the expected text.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const BEGIN: &str = "<!-- lab: ";
const END: &str = "<!-- end of lab -->";
const ACCESSORS: [(&str, &str); 4] = [
    ("pullup", "m_pullup"),
    ("pullup2", "m_pullup2"),
    ("pulldown", "m_pulldown"),
    ("scratch", "scratch (ours)"),
];
const ROWS: [&str; 6] =
    ["mixed", "nd-heavy", "tcp-heavy", "loopback", "routing-header", "destination-options"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The block of lab/README.md out of a report.
fn block(report: &Value) -> String {
    let median = |name: &str| report["metrics"][name]["median"].as_f64().unwrap();
    let mut text = String::from("| bytes copied a packet; packets lost |");
    ACCESSORS.iter().for_each(|(_, title)| text += &format!(" {title} |"));
    text += "\n|---|---|---|---|---|\n";
    for row in ROWS {
        text += &format!("| {row} |");
        let packets = median(&format!("{row}/packets"));
        for (accessor, _) in ACCESSORS {
            let per = |what: &str| median(&format!("{row}/{accessor}/{what}")) / packets;
            let (bytes, lost) = (per("copied-bytes"), 100.0 * per("lost"));
            text += &match lost {
                0.0 => format!(" {bytes:.2} B |"),
                _ => format!(" {bytes:.2} B; {lost:.1} % lost |"),
            };
        }
        text += "\n";
    }
    let fifth = |what: &str| median(&format!("routing-header/counted/{what}-per-packet"));
    text += &format!(
        "| the fifth row as its author counted, {} calls a packet | {} copies, {} failures | {} \
         copies | {} copy | |\n",
        fifth("calls"),
        fifth("pullup-copies"),
        fifth("pullup-failures"),
        fifth("pullup2-copies"),
        fifth("pulldown-copies"),
    );
    text
}

#[test]
fn the_figures_of_the_lab_readme_are_those_of_the_results_it_names() {
    let readme = fs::read_to_string(root().join("lab/README.md")).unwrap();
    let (_, rest) = readme.split_once(BEGIN).expect("lab/README.md names no results");
    let (folder, rest) = rest.split_once(" -->\n").unwrap();
    let (found, _) = rest.split_once(END).unwrap();
    let report = fs::read_to_string(root().join(folder).join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["passed"], &report["size"]), (&Value::Bool(true), &"full".into()));
    let want = block(&report);
    assert_eq!(found.trim(), want.trim(), "lab/README.md should say:\n{want}");
}
