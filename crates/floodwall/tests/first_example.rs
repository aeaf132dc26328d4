//! The first example stays short, and the front page shows the same program.

/// What a newcomer reads first.
const EXAMPLE: &str = include_str!("../examples/udp_echo_tokio.rs");
const FRONT_PAGE: &str = include_str!("../src/lib.rs");

#[test]
fn the_first_example_has_under_twenty_lines() {
    assert!(EXAMPLE.lines().count() < 20, "{} lines", EXAMPLE.lines().count());
}

#[test]
fn the_front_page_shows_the_same_loop() {
    let mut inside = EXAMPLE.lines().skip_while(|line| line.trim() != "loop {").skip(1);
    for line in inside.by_ref().take(2) {
        let shown = format!("//! {}", line);
        assert!(FRONT_PAGE.lines().any(|other| other == shown), "not on the front page: {line}");
    }
}
