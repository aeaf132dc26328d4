//! The HTML reports of `drill --report` and `lab --report`, looked at by a headless Chromium.
//!
//! Chromium parts are skipped with a line where it is not installed.

use std::path::Path;
use std::process::Command;

use crate::support::{BIN, Folder};

/// Appended to a copy of the page: what a reader's browser makes of it.
const PROBE: &str = "<script>
const boxes=[...document.querySelectorAll('svg')].map(s=>s.getBoundingClientRect());
const seen=boxes.filter(b=>b.width>50&&b.height>20).length;
const wide=document.documentElement.scrollWidth>window.innerWidth;
document.body.dataset.probe=`svg ${seen} of ${boxes.length}; wide ${wide}`;
</script>";

/// What the browser says of a page on a window of this width: its probe, and its console.
fn look(page: &Path, width: u32, dark: bool) -> Option<(String, String)> {
    let copy = page.with_file_name(format!("probe-{width}-{dark}.html"));
    let text =
        std::fs::read_to_string(page).unwrap().replace("</body>", &format!("{PROBE}</body>"));
    std::fs::write(&copy, text).unwrap();
    let profile = page.with_file_name("profile");
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
    if dark {
        chromium.arg("--blink-settings=preferredColorScheme=0");
    }
    chromium.arg(format!("--window-size={width},900"));
    chromium.arg(format!("--user-data-dir={}", profile.display()));
    let Ok(output) = chromium.arg("--dump-dom").arg(&copy).output() else {
        eprintln!("skipped: chromium (Debian: chromium) is not installed");
        return None;
    };
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let probe = dom.split("data-probe=\"").nth(1).unwrap_or("").split('"').next().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let console: Vec<_> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    Some((probe.to_owned(), console.join("\n")))
}

fn report(args: &[&str], folder: &Folder) -> String {
    let output = Command::new(BIN).args(args).arg("--report").arg(&folder.0).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
    let page = folder.0.join("index.html");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && !text.contains("<script"), "self-contained");
    for outside in ["src=", "url(", "@import", "<link rel=\"stylesheet"] {
        assert!(!text.contains(outside), "{outside}: nothing is loaded");
    }
    let pictures = text.matches("<svg").count();
    assert!(pictures > 0);
    for (width, dark) in [(1200, false), (1200, true), (500, false)] {
        if let Some((probe, console)) = look(&page, width, dark) {
            assert_eq!(probe, format!("svg {pictures} of {pictures}; wide false"), "{width}");
            assert_eq!(console, "", "{width}");
        }
    }
    text
}

#[test]
fn a_drill_writes_a_page_with_its_floors_shares_machine_and_command() {
    let folder = Folder::new("drill-report");
    let text = report(&["drill", "--sim", "--seconds", "0.1"], &folder);
    for part in
        ["criteria hold", "required", "published", "99.3 to 100 %", "IPv6", "99 % floor", "--sim"]
    {
        assert!(text.contains(part), "{part}");
    }
    // A folder that cannot be made is a failure with a sentence.
    let output = Command::new(BIN)
        .args(["drill", "--sim", "--seconds", "0.1", "--report", "/dev/null/x"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the report"));
}

#[cfg(feature = "lab")]
#[test]
fn an_experiment_writes_a_page_with_the_published_figures_and_its_plots() {
    let folder = Folder::new("lab-report");
    let plan = "header-pull";
    let text = report(&["lab", plan, "--quick"], &folder);
    for part in ["claims hold", "<caption>", "expected", "--quick"] {
        assert!(text.contains(part), "{part}");
    }
}
