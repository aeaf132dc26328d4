//! The built command from outside: exit codes, streams, and what goes where.
//!
//! Nothing here needs privilege: what `run` does with devices is tried on real ones by the
//! interop tests.
#![expect(clippy::unwrap_used, reason = "what a test cannot do without ends the test")]

use std::path::PathBuf;
use std::process::{Command, Output};

fn floodwall(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodwall"));
    // No socket of another instance of this machine may be found.
    command.args(args).env("XDG_RUNTIME_DIR", folder()).env("NO_COLOR", "1");
    command.output().unwrap()
}

/// A folder for this test run.
fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("floodwall-cli-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn write(name: &str, text: &str) -> String {
    let path = folder().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const GOOD: &str = "[[interface]]\ndevice = \"tap:fw0\"\naddress = [\"10.0.0.2/24\"]\n";

#[test]
fn help_and_version_are_answers_not_errors() {
    for args in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"], &["help", "stat"]] {
        let output = floodwall(args);
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(!out(&output).is_empty() && err(&output).is_empty(), "{args:?}");
    }
    assert!(out(&floodwall(&["--help"])).contains("Exit codes:"));
    assert!(out(&floodwall(&["run", "--help"])).contains("kind = \"udp-echo\""));
}

#[test]
fn a_usage_error_exits_with_1() {
    for args in [
        &[][..],
        &["dance"],
        &["run", "--dance"],
        &["run", "--mtu", "x"],
        &["stat", "--interval", "0", "--watch"],
        &["check"],
        &["completions", "nosuch"],
    ] {
        let output = floodwall(args);
        assert_eq!(code(&output), 1, "{args:?}");
        assert!(out(&output).is_empty() && !err(&output).is_empty(), "{args:?}");
    }
}

#[test]
fn check_says_what_a_good_file_holds() {
    let output = floodwall(&["check", &write("good.toml", GOOD)]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).ends_with("good.toml: good: 1 interface, 1 address, 0 services\n"));
}

#[test]
fn check_names_the_place_in_a_bad_file_and_exits_with_1() {
    let path = write("bad.toml", &GOOD.replace("/24", "/33"));
    let output = floodwall(&["check", &path]);
    assert_eq!(code(&output), 1);
    assert!(out(&output).is_empty());
    let expected = format!("{path}:3:12: interface.address: /33 is not a prefix length");
    assert!(err(&output).starts_with(&expected), "{}", err(&output));
}

#[test]
fn run_refuses_a_bad_configuration_before_it_touches_a_device() {
    let path = write("run.toml", "[[interface]]\ndevice = \"tap:fw0\"\nmtu = 3\n");
    let output = floodwall(&["run", "--config", &path]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains(":3:7: interface.mtu: 3 cannot be an MTU"), "{}", err(&output));
    let output = floodwall(&["run"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("there is no device; name one with --device"));
}

#[test]
fn run_names_an_interface_that_is_not_there_or_the_privilege_that_is_missing() {
    let output = floodwall(&["run", "--device", "packet:nosuch0"]);
    assert_eq!(code(&output), 1);
    let text = err(&output);
    assert!(text.contains("nosuch0"), "{text}");
    let says_why = text.contains("does not exist") || text.contains("CAP_NET_RAW");
    assert!(says_why && text.contains("; "), "{text}");
    assert!(!folder().join("floodwall/nosuch0.sock").exists());
}

#[test]
fn stat_without_an_instance_exits_with_3_and_says_what_to_do() {
    for args in [&["stat"][..], &["stat", "--json"], &["stat", "--socket", "/nonexistent/x.sock"]] {
        let output = floodwall(args);
        // Another instance may run on this machine in the folder of the system.
        if args.len() < 3 && code(&output) != 3 {
            continue;
        }
        assert_eq!(code(&output), 3, "{args:?}");
        assert!(out(&output).is_empty(), "{args:?}");
        assert!(err(&output).contains("start one with `floodwall run`"), "{}", err(&output));
    }
}

#[test]
fn stat_exits_with_2_where_the_instance_refuses() {
    use std::io::{Read, Write};
    let path = folder().join("refuses.sock");
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = std::thread::Builder::new().spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 5];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"stat\n");
        stream.write_all(b"{\"error\":\"not today\"}\n").unwrap();
    });
    let output = floodwall(&["stat", "--socket", path.to_str().unwrap()]);
    server.unwrap().join().unwrap();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("refused: not today"), "{}", err(&output));
}

#[test]
fn the_man_page_names_every_command_and_option() {
    let output = floodwall(&["man"]);
    assert_eq!(code(&output), 0);
    let page = out(&output);
    assert!(page.contains(".TH floodwall 1"));
    for word in [".SH RUN", ".SH STAT", ".SH CHECK", "\\-\\-device", "\\-\\-json", "Exit codes:"] {
        assert!(page.contains(word), "{word} in\n{page}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = floodwall(&["completions", shell]);
        assert_eq!(code(&output), 0, "{shell}");
        let script = out(&output);
        assert!(script.contains("floodwall") && script.contains("gateway"), "{shell}");
    }
    let help = out(&floodwall(&["--help"]));
    assert!(!help.contains("completions") && !help.contains("man "), "hidden: {help}");
}

#[test]
fn a_simulated_drill_prints_one_document_and_its_verdict_is_the_exit_code() {
    let output = floodwall(&["drill", "--sim", "--json", "--seed", "3", "--seconds", "0.1"]);
    let document: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
    let passed = document["passed"].as_bool().unwrap();
    assert_eq!(code(&output), if passed { 0 } else { 1 });
    assert_eq!(document["seed"], 3);
    assert_eq!(document["verdicts"].as_array().unwrap().len(), 13);
    assert!(err(&output).contains("honest answered"), "the table is for humans");
    // Not 1, which is a criterion that does not hold.
    assert_eq!(code(&floodwall(&["drill", "--sim", "--tap"])), 2);
    for length in ["0", "0.09", "-1", "3601", "NaN", "inf", "a"] {
        assert_eq!(code(&floodwall(&["drill", "--sim", "--seconds", length])), 2, "{length}");
    }
}
