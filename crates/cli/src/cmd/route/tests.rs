//! What becomes of words, batches and lists before the instance is contacted.

use super::*;

fn lines_of(object: &str, text: &str) -> Result<String, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let options = options(&mut words).map_err(|wrong| wrong.what)?;
    lines(object, &options, &words).map_err(|wrong| format!("{}; {}", wrong.what, wrong.remedy))
}

#[test]
fn options_stand_before_the_verb_in_ip_s_words() {
    assert_eq!(lines_of("route", "-6 show").unwrap(), "-6 route show");
    assert_eq!(lines_of("route", "-4 -j get 192.0.2.1").unwrap(), "-4 route get 192.0.2.1");
    assert_eq!(lines_of("rule", "add table 7").unwrap(), "rule add table 7");
    assert_eq!(lines_of("route", "-x show").unwrap_err(), "\"-x\" is no option");
    assert!(lines_of("route", "-batch").is_err());
}

#[test]
fn a_batch_names_the_line_that_is_wrong_and_keeps_its_numbers() {
    let good = "# a remark\nadd 192.0.2.0/24 dev fw0\n\nroute del default\nrule add table 7\n";
    let text = batch("route", "", good, false).unwrap();
    let expected = "\nroute add 192.0.2.0/24 dev fw0\n\nroute del default\nrule add table 7\n";
    assert_eq!(text, expected);
    let mut long = "add 192.0.2.0/24 dev fw0\n".repeat(69_999);
    long.push_str("add 192.0.2.1/24 dev fw0\n");
    let WrongValue { what, remedy } = batch("route", "", &long, false).unwrap_err();
    assert!(what.starts_with("line 70000: 192.0.2.1/24 has bits behind"), "{what}");
    assert_eq!(remedy, "nothing was applied");
    assert!(batch("route", "", &long, true).is_ok());
}

#[test]
fn a_list_of_prefixes_takes_the_words_behind_it_and_those_of_their_family() {
    let list = "192.0.2.0/24\r\n2001:db8::/32\r\n198.51.100.0/24\r\n";
    let lines = load(list, &["via", "10.0.0.1"]).unwrap();
    let v4 = "route add 192.0.2.0/24 via 10.0.0.1\n\nroute add 198.51.100.0/24 via 10.0.0.1\n";
    assert_eq!(lines, v4);
    let lines = load(list, &["dev", "fw0"]).unwrap();
    assert_eq!(lines.lines().filter(|line| !line.is_empty()).count(), 3);
    assert!(load("x/8\n", &["dev", "fw0"]).unwrap_err().what.starts_with("line 1: "));
}
