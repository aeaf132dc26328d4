//! `conformance`: how Floodwall fares with collections of packetdrill scripts that the user has.
//!
//! Each folder is one collection: its scripts are played in memory, over both families unless a
//! script is of one, and sorted into passed, permitted (a difference on purpose, with its reason),
//! failed, and not played (what needs a construct or a setting that Floodwall does not have). With
//! `--write` the table of the collection in `docs/conformance.md` is replaced. Invariant: true only
//! if nothing failed. Not here: the scripts; those of others stay where the user has them.

#![expect(clippy::disallowed_methods, reason = "a panic of one play must not end the others")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use floodwall_testkit::pkt::{Failure, Memory, Script, parse_with, permitted, play};

/// The page with the tables.
const PAGE: &str = "docs/conformance.md";
/// The scripts by name, each with its outcomes.
const LIST: &str = "docs/conformance-scripts.txt";
/// The text of `--help`.
const HELP: &str = "\
Plays collections of packetdrill scripts against Floodwall in memory.

usage: cargo xtask conformance [--write] [-D NAME=VALUE]... FOLDER...

  --write           replace each collection's table in docs/conformance.md, and its scripts'
                    names and outcomes in docs/conformance-scripts.txt
  -v, --verbose     name every script that did not pass
  -D NAME=VALUE     NAME stands for VALUE in the scripts
  -h, --help        this text

Exit code: 0 only if no script failed without a permitted difference.";

/// How one play ended.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    /// What the script requires, why it is not done, and how it failed.
    Permitted(&'static str, &'static str, String),
    /// What is not supported.
    NotPlayed(String),
    Failed(String),
}

/// The plays of one family.
#[derive(Clone, Default, Debug)]
struct Tally {
    scripts: u32,
    passed: u32,
    permitted: u32,
    failed: u32,
}

/// A collection's results.
#[derive(Clone, Default, Debug)]
struct Results {
    /// Of IPv4 and of IPv6.
    tallies: [Tally; 2],
    /// Reasons of differences on purpose, with how many plays each has.
    permitted: BTreeMap<(&'static str, &'static str), u32>,
    /// What is not supported, with how many plays need it.
    not_played: BTreeMap<String, u32>,
    /// How each script's plays ended, over IPv4 and IPv6.
    scripts: BTreeMap<String, [Option<String>; 2]>,
}

/// Plays the collections that the arguments name.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    let (mut folders, mut options) = (Vec::new(), Vec::new());
    let (mut writes, mut is_verbose) = (false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-h" | "--help" => {
                println!("{HELP}");
                return Ok(true);
            }
            "--write" => writes = true,
            "-v" | "--verbose" => is_verbose = true,
            "-D" | "--define" => {
                options.push(word.clone());
                options.extend(words.next().cloned());
            }
            option if option.starts_with('-') => return Err(format!("{option}: no such option")),
            folder => folders.push(PathBuf::from(folder)),
        }
    }
    if folders.is_empty() {
        return Err(format!("conformance: name a folder of scripts\n\n{HELP}"));
    }
    let mut passed = true;
    for folder in folders {
        let name = name_of(&folder)?;
        let results = collection(&folder, &options, is_verbose)?;
        let table = results.table(&name);
        println!("{table}");
        passed &= results.tallies.iter().all(|tally| tally.failed == 0);
        if writes {
            rewrite(root, PAGE, |page| replaced(page, &name, &table))?;
            rewrite(root, LIST, |list| relisted(list, &name, &results.lines(&name)))?;
        }
    }
    Ok(passed)
}

/// Replaces a file's text by what is made of it.
fn rewrite(root: &Path, file: &str, change: impl Fn(&str) -> String) -> Result<(), String> {
    let (path, error) = (root.join(file), |error| format!("{file}: {error}"));
    let text = std::fs::read_to_string(&path).map_err(error)?;
    std::fs::write(&path, change(&text)).map_err(error)
}

/// The last two words of a collection's path.
fn name_of(folder: &Path) -> Result<String, String> {
    let path = folder.canonicalize().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut words: Vec<_> = path.iter().rev().take(2).map(|word| word.to_string_lossy()).collect();
    words.reverse();
    Ok(words.join("/"))
}

/// Plays all scripts below a folder.
fn collection(folder: &Path, options: &[String], is_verbose: bool) -> Result<Results, String> {
    let mut paths = Vec::new();
    find(folder, &mut paths)?;
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{}: no .pkt file is there", folder.display()));
    }
    let mut results = Results::default();
    for path in paths {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let text = std::fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        for is_ipv6 in families(&name, &text) {
            let outcome = outcome(&text, options, is_ipv6);
            if is_verbose && outcome != Outcome::Passed {
                let family = if is_ipv6 { "IPv6" } else { "IPv4" };
                println!("{name} over {family}: {outcome:?}");
            }
            let ended = results.scripts.entry(name.clone()).or_default();
            ended[usize::from(is_ipv6)] = Some(outcome.label());
            results.count(is_ipv6, outcome);
        }
    }
    Ok(results)
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), String> {
    let error = |error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let entry = entry.map_err(error)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(error)?);
        if kind.is_dir() {
            find(&path, paths)?;
        } else if kind.is_file() && path.extension().is_some_and(|it| it == "pkt") {
            paths.push(path);
        }
    }
    Ok(())
}

/// The families that a script is played over: the one that it states or that its name has, or both.
fn families(name: &str, text: &str) -> Vec<bool> {
    let stem = name.trim_end_matches(".pkt");
    let is_of = |words: [&str; 2]| words.iter().any(|word| stem.ends_with(word));
    let option = text.lines().find_map(|line| line.trim().strip_prefix("--ip_version="));
    match option.map(|version| version.starts_with("ipv6")) {
        Some(is_ipv6) => vec![is_ipv6],
        None if is_of(["v6", "ipv6"]) => vec![true],
        None if is_of(["v4", "ipv4"]) || text.contains("/net/ipv6/") => vec![false],
        None => vec![false, true],
    }
}

fn outcome(text: &str, options: &[String], is_ipv6: bool) -> Outcome {
    let script = match parse_with(text, options) {
        Ok(script) => script,
        Err(why) => return Outcome::NotPlayed(format!("`{}`: {}", why.near, why.what)),
    };
    let script = if is_ipv6 && !script.is_ipv6() { script.over_ipv6() } else { script };
    match played(script.clone()) {
        Ok(()) => Outcome::Passed,
        Err(failure) if failure.is_unsupported() => {
            Outcome::NotPlayed(failure.what.trim().to_owned())
        }
        Err(failure) => match permitted(&script, &failure) {
            Some(it) => Outcome::Permitted(it.what, it.why, failure.to_string()),
            None => Outcome::Failed(failure.to_string()),
        },
    }
}

fn played(script: Script) -> Result<(), Failure> {
    let player = thread::spawn(move || {
        let memory = Memory::new(&script);
        let mut memory = memory.map_err(|what| Failure { line: 0, what })?;
        play(&script, &mut memory)
    });
    let panicked = |_| Failure { line: 0, what: "the player panicked".to_owned() };
    player.join().map_err(panicked)?
}

impl Outcome {
    /// In the list of scripts.
    fn label(&self) -> String {
        match self {
            Self::Passed => "passed".to_owned(),
            Self::Permitted(what, ..) => format!("permitted: {what}"),
            Self::NotPlayed(_) => "not played".to_owned(),
            Self::Failed(_) => "failed".to_owned(),
        }
    }
}

impl Results {
    /// One line for each script: `COLLECTION SCRIPT | IPv4 | IPv6`.
    fn lines(&self, name: &str) -> String {
        let ended = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
        let line = |(script, [v4, v6]): (&String, &[Option<String>; 2])| {
            format!("{name} {script} | {} | {}\n", ended(v4), ended(v6))
        };
        self.scripts.iter().map(line).collect()
    }

    fn count(&mut self, is_ipv6: bool, outcome: Outcome) {
        let tally = &mut self.tallies[usize::from(is_ipv6)];
        tally.scripts += 1;
        match outcome {
            Outcome::Passed => tally.passed += 1,
            Outcome::Permitted(what, why, _) => {
                tally.permitted += 1;
                *self.permitted.entry((what, why)).or_default() += 1;
            }
            Outcome::NotPlayed(what) => *self.not_played.entry(what).or_default() += 1,
            Outcome::Failed(_) => tally.failed += 1,
        }
    }

    /// The collection's part of the page.
    fn table(&self, name: &str) -> String {
        let mut out = format!("### {name}\n\n");
        out += "| family | scripts | played | passed | permitted differences | failed |\n";
        out += "|---|---|---|---|---|---|\n";
        for (family, tally) in ["IPv4", "IPv6"].iter().zip(&self.tallies) {
            let Tally { scripts, passed, permitted, failed } = tally;
            let played = passed + permitted + failed;
            let _ = writeln!(
                out,
                "| {family} | {scripts} | {played} | {passed} | {permitted} | {failed} |"
            );
        }
        if !self.permitted.is_empty() {
            out += "\nPermitted differences: what the scripts expect, and what Floodwall does.\n\n";
            for ((what, why), count) in &self.permitted {
                let _ = writeln!(out, "* {}, expected: {what}. Floodwall: {why}.", plays(*count));
            }
        }
        if !self.not_played.is_empty() {
            out += "\nNot played, for:\n\n";
            for (what, count) in &self.not_played {
                let _ = writeln!(out, "* {}: {what}", plays(*count));
            }
        }
        out
    }
}

fn plays(count: u32) -> String {
    if count == 1 { "1 play".to_owned() } else { format!("{count} plays") }
}

/// The page with this collection's part replaced, or appended where there is none yet.
fn replaced(page: &str, name: &str, table: &str) -> String {
    let heading = format!("### {name}\n");
    let Some(start) = page.find(&heading) else {
        return format!("{}\n\n{table}", page.trim_end());
    };
    let after = start + heading.len();
    let rest = page.get(after..).unwrap_or_default();
    let end = rest.find("\n### ").or_else(|| rest.find("\n## "));
    let tail = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    format!("{}{table}{tail}", page.get(..start).unwrap_or_default())
}

/// The list with this collection's lines replaced.
fn relisted(list: &str, name: &str, lines: &str) -> String {
    let collection = format!("{name} ");
    let others = list.lines().filter(|line| !line.starts_with(&collection));
    let mut text: String = others.flat_map(|line| [line, "\n"]).collect();
    text.push_str(lines);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n\
                        +0 listen(3, 1) = 0\n+0 < S 0:0(0) win 1000 <mss 1000>\n";

    #[test]
    fn plays_are_sorted_by_how_they_end() {
        let say = |rest: &str| outcome(&format!("`./defaults.sh`\n{OPEN}{rest}"), &[], false);
        assert_eq!(say("+0 > S. 0:0(0) ack 1 <mss 1460>\n"), Outcome::Passed);
        assert!(matches!(say("+0 > S. 0:0(0) ack 2 <mss 1460>\n"), Outcome::Failed(_)));
        assert!(matches!(say("+0 `reboot`\n"), Outcome::NotPlayed(_)));
        assert!(matches!(say("+0 mmap(3) = 0\n"), Outcome::NotPlayed(_)));
        let write = "+0 > S. 0:0(0) ack 1 <mss 1460>\n+0 < . 1:1(0) ack 1 win 9\n\
                     +0 accept(3, ..., ...) = 4\n+0 write(4, ..., 10) = 7\n";
        assert!(matches!(say(write), Outcome::Permitted(..)));
    }

    #[test]
    fn a_script_is_played_over_the_families_that_it_is_of() {
        assert_eq!(families("a/b.pkt", ""), [false, true]);
        assert_eq!(families("a/b-ipv6.pkt", ""), [true]);
        assert_eq!(families("a/b-v4.pkt", ""), [false]);
        assert_eq!(families("a/b.pkt", "--tolerance_usecs=9\n--ip_version=ipv6\n"), [true]);
    }

    #[test]
    fn a_collections_part_of_the_page_is_replaced_alone() {
        let page = "# C\n\n### a\n\nold\n\n### b\n\nkept\n";
        let page = replaced(page, "a", "### a\n\nnew\n");
        assert_eq!(page, "# C\n\n### a\n\nnew\n\n### b\n\nkept\n");
        assert_eq!(replaced(&page, "c", "### c\n"), format!("{}\n\n### c\n", page.trim_end()));
    }

    #[test]
    fn a_collections_scripts_are_listed_once_with_both_families() {
        let mut results = Results::default();
        let ended = results.scripts.entry("x.pkt".to_owned()).or_default();
        ended[1] = Some(Outcome::Permitted("what", "why", String::new()).label());
        let list =
            relisted("# head\na/b old | - | -\na/c kept | - | -\n", "a/b", &results.lines("a/b"));
        assert_eq!(list, "# head\na/c kept | - | -\na/b x.pkt | - | permitted: what\n");
    }

    #[test]
    fn counts_add_up_in_the_table() {
        let mut results = Results::default();
        for outcome in [
            Outcome::Passed,
            Outcome::Permitted("x", "y", String::new()),
            Outcome::NotPlayed("z".to_owned()),
            Outcome::Failed("?".to_owned()),
        ] {
            results.count(true, outcome);
        }
        let table = results.table("name");
        assert!(table.contains("| IPv6 | 4 | 3 | 1 | 1 | 1 |"), "{table}");
        assert!(table.contains("* 1 play, expected: x. Floodwall: y.\n"), "{table}");
        assert!(table.contains("* 1 play: z\n"), "{table}");
    }
}
