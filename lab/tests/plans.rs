//! Every plan's quick form runs here, so that no experiment rots; and every claim is seen to fail.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

mod broken;

use broken::{Broken, failed};
use floodwall_lab::{
    Experiment, LabError, Plan, Report, Silent, Size, keep, listed, redraw, run, run_experiment,
};

/// Plans that measure time of real threads: each has a file of tests and so a process of its own.
const OF_REAL_THREADS: &[&str] =
    &["first-line", "first-line-router", "grace-period", "guard", "udp-flood", "xdp-flood"];

fn quick(text: &str) -> Report {
    run(&Plan::parse("test", text).unwrap(), Size::Quick, &mut Silent).unwrap()
}

fn header_pull() -> String {
    Plan::load("header-pull").unwrap().text
}

/// The text with one place changed, which must be there.
fn with(from: &str, to: &str) -> String {
    let text = header_pull();
    assert!(text.contains(from), "the plan has no `{from}`");
    text.replace(from, to)
}

#[test]
fn every_plan_holds_in_its_quick_form() {
    for plan in listed().unwrap() {
        if OF_REAL_THREADS.contains(&plan.name.as_str()) {
            continue;
        }
        let plan = Plan::load(&plan.name).unwrap();
        let report = run(&plan, Size::Quick, &mut Silent).unwrap();
        assert!(report.passed, "{report}");
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers() {
    let (one, other) = (quick(&header_pull()), quick(&header_pull()));
    assert_eq!(one.metrics, other.metrics);
    assert_eq!((one.tables, one.plots), (other.tables, other.plots));
}

#[test]
fn every_claim_fails_on_a_result_that_breaks_it_and_only_that_claim() {
    use floodwall_lab::experiments::{
        header_pull::HeaderPull, route_flood::RouteFlood, starvation::Starvation,
    };
    for experiment in [&HeaderPull as &dyn Experiment, &RouteFlood, &Starvation] {
        each_claim_fails_alone(experiment);
    }
}

fn each_claim_fails_alone(experiment: &dyn Experiment) {
    let plan = Plan::load(experiment.name()).unwrap();
    let whole = experiment.run(&plan, &plan.quick.settings, 1, &mut Silent).unwrap();
    // What a quick run does not measure is not judged.
    for claim in plan.claims.iter().filter(|claim| claim.given.is_none()) {
        let broken = Broken { whole: &whole, claim };
        let report = run_experiment(&broken, &plan, Size::Quick, &mut Silent).unwrap();
        assert!(!report.passed, "{}", claim.id);
        assert!(failed(&report).contains(&claim.id.as_str()), "{}: {report}", claim.id);
        assert!(failed(&report).len() <= 2, "{}: {:?}", claim.id, failed(&report));
    }
}

#[test]
fn weaker_accessors_break_the_claims_about_them() {
    for (from, to, breaks) in [
        // A scratch that straddling headers do not fit.
        ("scratch = 2048", "scratch = 16", "scratch-never-fails"),
        // Another buffer than the source's: other limits.
        ("\nheader = 100", "\nheader = 64", "pullup-limit"),
        ("\ncluster = 2048", "\ncluster = 1600", "pullup2-limit"),
        ("\ncluster = 2048", "\ncluster = 1600", "pulldown-single-limit"),
        // Where everything fits the first piece, nothing is called.
        ("counted_header = 96", "counted_header = 128", "fifth-row-calls"),
        // Another packet.
        ("own/seed-rh0-4addr-echo.pcap\" }", "own/nmap-O-v6.pcap\" }", "pullup-loses-packets"),
        // A row that is called otherwise.
        ("name = \"routing-header\"", "name = \"another\"", "fifth-row-pulldown"),
    ] {
        let report = quick(&with(from, to));
        assert!(failed(&report).contains(&breaks), "{to}: {:?}", failed(&report));
    }
}

#[test]
fn a_plan_that_asks_for_what_is_not_there_is_an_error() {
    let run_text = |text: String| {
        run(&Plan::parse("test", &text).unwrap(), Size::Quick, &mut Silent).unwrap_err()
    };
    let error = run_text(with("experiment = \"header-pull\"", "experiment = \"x\""));
    assert!(matches!(error, LabError::NoExperiment { .. }), "{error}");
    let error = run_text(with("\"own/nmap-O-v4.pcap\"", "\"own/nosuch.pcap\""));
    assert!(matches!(error, LabError::Capture { .. }), "{error}");
    let error = run_text(with("counted_header = 96", "counted_heading = 96"));
    assert!(matches!(error, LabError::Plan { .. }), "{error}");
}

#[test]
fn results_are_kept_whole() {
    let plan = Plan::load("header-pull").unwrap();
    let report = run(&plan, Size::Quick, &mut Silent).unwrap();
    let folder = std::env::temp_dir().join(format!("floodwall-lab-{}", std::process::id()));
    let kept = keep(&plan, &report, &folder).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("plan.toml"), plan.text);
    assert_eq!(read("report.txt"), report.to_string());
    assert!(read("header-lengths.svg").starts_with("<svg"));
    let json: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["passed"], true);
    assert!(json["machine"]["commit"].is_string() && json["seeds"] == serde_json::json!([1]));
    let csv = read("metrics.csv");
    assert!(csv.starts_with("metric,seed 1\n"));
    assert!(csv.contains("\nrouting-header/counted/calls-per-packet,11\n"), "{csv}");
    assert_eq!(kept.files.len(), 6);
    let picture = read("header-lengths.svg");
    std::fs::remove_file(folder.join("header-lengths.svg")).unwrap();
    let drawn = redraw(&folder).unwrap();
    assert_eq!(drawn.files, ["header-lengths.svg"]);
    assert_eq!(read("header-lengths.svg"), picture, "drawn again from the data beside it");
    let outside = read("plots.json").replace("header-lengths.svg", "../header-lengths.svg");
    std::fs::write(folder.join("plots.json"), outside).unwrap();
    assert!(redraw(&folder).is_err(), "a picture stays in its folder");
    std::fs::remove_dir_all(&folder).unwrap();
}
