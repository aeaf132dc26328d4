//! `floodwall route` and `floodwall rule`: ip(8)'s words for a running instance.
//!
//! All words are parsed here first; a batch, a list of prefixes and the kernel's table become lines
//! of the same words. Errors of the instance are printed as they come.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::args::RouteArgs;
use crate::exit::Exit;
use crate::output;
use crate::routes::{document, import, parse, session};
use crate::settings::parse::{WrongValue, wrong};
use crate::socket::{client, path};

/// The options before the verb.
#[derive(Default)]
struct RouteOptions {
    json: bool,
    force: bool,
    family: &'static str,
    batch: Option<String>,
    socket: Option<String>,
}

/// `floodwall route …`
pub(crate) fn route(args: &RouteArgs) -> Exit {
    serve(args, "route")
}

/// `floodwall rule …`
pub(crate) fn rule(args: &RouteArgs) -> Exit {
    serve(args, "rule")
}

fn serve(args: &RouteArgs, object: &str) -> Exit {
    let mut words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let complain = |WrongValue { what, remedy }: WrongValue| {
        eprintln!("floodwall: {object}: {what}; {remedy}");
        Exit::Usage
    };
    let options = match options(&mut words) {
        Ok(options) => options,
        Err(wrong) => return complain(wrong),
    };
    let lines = match lines(object, &options, &words) {
        Ok(lines) => lines,
        Err(wrong) => return complain(wrong),
    };
    let named = options.socket.as_deref().map(Path::new).or(args.socket.as_deref());
    let socket = match path::find(named) {
        Ok(socket) => socket,
        Err(exit) => return exit,
    };
    let answer = match client::ask_routes(
        &socket,
        &lines,
        options.force || words.first() == Some(&"import"),
    ) {
        Ok(answer) => answer,
        Err(error) => {
            eprintln!("floodwall: {object}: {error}");
            return error.exit();
        }
    };
    show(&answer, args.json || options.json)
}

/// Takes the options that stand before the verb off.
fn options(words: &mut Vec<&str>) -> Result<RouteOptions, WrongValue> {
    let mut options = RouteOptions::default();
    while let Some(word) = words.first().copied().filter(|word| word.starts_with('-')) {
        let valued = matches!(word, "-batch" | "-b" | "--batch" | "--socket");
        let value = words.get(1).filter(|_| valued).map(|value| (*value).to_owned());
        if valued && value.is_none() {
            return Err(words_missing(word));
        }
        match word {
            "-4" => options.family = "-4 ",
            "-6" => options.family = "-6 ",
            "-j" | "-json" | "--json" => options.json = true,
            "-force" | "--force" => options.force = true,
            "--socket" => options.socket = value,
            "-batch" | "-b" | "--batch" => options.batch = value,
            _ => {
                let remedy = "the options are -4, -6, -j, -batch FILE, -force and --socket PATH";
                return Err(wrong(format!("{word:?} is no option"), remedy));
            }
        }
        words.drain(..if valued { 2 } else { 1 });
    }
    Ok(options)
}

fn words_missing(word: &str) -> WrongValue {
    wrong(format!("nothing stands behind {word:?}"), "write its value behind it")
}

/// The lines that are to be carried out, each read once here.
fn lines(object: &str, options: &RouteOptions, words: &[&str]) -> Result<String, WrongValue> {
    let family = options.family;
    if let Some(file) = &options.batch {
        if !words.is_empty() {
            let remedy = "write them as a line of the file";
            return Err(wrong(format!("{:?} stands beside -batch", words[0]), remedy));
        }
        return batch(object, family, &text_of(file)?, options.force);
    }
    match (object, words) {
        ("route", ["load", file, rest @ ..]) => load(&text_of(file)?, rest),
        ("route", ["load"]) => Err(words_missing("load")),
        ("route", ["import", rest @ ..]) => import::lines(rest),
        _ => {
            let line = format!("{family}{object} {}", words.join(" "));
            let all: Vec<&str> = line.split_ascii_whitespace().collect();
            parse::line(&all, None).map(|_| line)
        }
    }
}

/// A file's text, `-` for standard input.
fn text_of(file: &str) -> Result<String, WrongValue> {
    let read = match file {
        "-" => io::read_to_string(io::stdin().lock()),
        file => fs::read_to_string(file),
    };
    read.map_err(|error| wrong(format!("cannot read {file}: {error}"), "name a file of text lines"))
}

/// A batch, its verbs with or without the object before them; lines keep their numbers.
fn batch(object: &str, family: &str, text: &str, force: bool) -> Result<String, WrongValue> {
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let first = line.split_ascii_whitespace().find(|word| !word.starts_with('-'));
        match first {
            None => {}
            Some("route" | "ro" | "r" | "rule" | "ru") => {
                lines.push_str(family);
                lines.push_str(line);
            }
            Some(_) => {
                lines.push_str(family);
                lines.push_str(object);
                lines.push(' ');
                lines.push_str(line);
            }
        }
        lines.push('\n');
    }
    let (_, faults) = session::read(&lines);
    match faults.first().filter(|_| !force) {
        Some((line, why)) => Err(wrong(format!("line {line}: {why}"), "nothing was applied")),
        None => Ok(lines),
    }
}

/// A list of prefixes, one a line, each with the words that stand behind the file's name: those of
/// the other family are left out where the words name a gateway.
fn load(text: &str, words: &[&str]) -> Result<String, WrongValue> {
    let gateway = words.windows(2).filter(|pair| pair[0] == "via").map(|pair| pair[1]).next();
    let wants_v6 = gateway.map(|gateway| gateway.contains(':'));
    let behind = words.join(" ");
    let mut lines = String::new();
    let mut first = true;
    for (at, prefix) in text.lines().map(str::trim).enumerate() {
        let prefix = prefix.split('#').next().unwrap_or_default().trim();
        let other = wants_v6.is_some_and(|v6| v6 != prefix.contains(':'));
        if !prefix.is_empty() && !other {
            let line = format!("route add {prefix} {behind}");
            let all: Vec<&str> = line.split_ascii_whitespace().collect();
            if first || prefix.contains(char::is_whitespace) {
                parse::line(&all, None).map_err(|WrongValue { what, remedy }| {
                    wrong(format!("line {}: {what}", at + 1), remedy)
                })?;
                first = false;
            }
            lines.push_str(&line);
        }
        lines.push('\n');
    }
    Ok(lines)
}

fn show(answer: &Value, json: bool) -> Exit {
    let list = |key: &str| answer.get(key).and_then(Value::as_array);
    let (all, in_words): (_, fn(&Value) -> String) = match (list("routes"), list("rules")) {
        (Some(routes), _) => (routes, document::route_in_words),
        (None, Some(rules)) => (rules, document::rule_in_words),
        (None, None) => return done(answer, json),
    };
    if answer.get("more").and_then(Value::as_bool) == Some(true) {
        let most = document::SHOWN_MAX;
        eprintln!("floodwall: only the first {most} routes; use a filter, as `show dev fw0`");
    }
    match json {
        true => output::print_document(&Value::Array(all.clone())),
        false => output::print(&all.iter().map(in_words).collect::<String>()),
    }
}

/// What was changed, and of a forced batch what was not.
fn done(answer: &Value, json: bool) -> Exit {
    let number = |key: &str| answer.get(key).and_then(Value::as_u64).unwrap_or(0);
    let faults = answer.get("faults").and_then(Value::as_array).cloned().unwrap_or_default();
    for fault in &faults {
        let why = fault.get("error").and_then(Value::as_str).unwrap_or("refused");
        eprintln!("floodwall: line {}: {why}", fault.get("line").unwrap_or(&Value::Null));
    }
    let (applied, refused) = (number("applied"), number("refused"));
    if refused > 0 {
        eprintln!("floodwall: {applied} lines were applied, {refused} were not");
    }
    let shown = if json { output::print_document(answer) } else { Exit::Done };
    if refused > 0 { Exit::Refused } else { shown }
}

#[cfg(test)]
#[path = "route/tests.rs"]
mod tests;
