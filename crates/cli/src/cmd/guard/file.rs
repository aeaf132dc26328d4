//! The configuration file of a guard: TOML with the names of the flags.
//!
//! Read once at the start, in the place of the flags. An error names the file, the line and the
//! column, what is wrong there, and what would be right.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::{GuardArgs, kernel_half, percent, udp_port};

/// What a file may say. What it does not say is as without the flag.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GuardFile {
    ports: Vec<u16>,
    udp: Vec<Spanned<UdpWord>>,
    udp_rate: Option<u32>,
    udp_unproven: Option<u32>,
    cookie_secret: Option<PathBuf>,
    always: bool,
    watch: Option<Spanned<PercentWord>>,
    generic: bool,
    pin: bool,
    ignore_rules: bool,
    kernel_half: Option<Spanned<String>>,
}

/// A UDP port, alone or with its protocol.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UdpWord {
    Port(u16),
    Text(String),
}

/// A part, as a number or with its sign.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PercentWord {
    Number(u32),
    Text(String),
}

/// A place of the file and what is wrong there, in words.
fn problem(path: &Path, text: &str, at: usize, what: &str) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{}:{line}:{column}: {what}", path.display())
}

/// The arguments with what the file says.
///
/// # Errors
/// In words, with the place and the remedy.
pub(super) fn read(args: &GuardArgs, path: &Path) -> Result<GuardArgs, String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("{}: cannot be read: {error}; --config names a file in TOML", path.display())
    })?;
    let file: GuardFile = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        // The message of an unknown key has the known ones.
        let what = error.message().lines().collect::<Vec<_>>().join(" ");
        problem(path, &text, at, &format!("{what} (docs/guard.md has an example)"))
    })?;
    let mut udp_ports = Vec::new();
    for word in &file.udp {
        let said = match word.get_ref() {
            UdpWord::Port(port) => port.to_string(),
            UdpWord::Text(text) => text.clone(),
        };
        let port = udp_port(&said).map_err(|what| {
            let what = format!("udp: {what}; for example 53, \"53:dns\" or \"27015:a2s\"");
            problem(path, &text, word.span().start, &what)
        })?;
        udp_ports.push(port);
    }
    let mut watch = args.watch;
    if let Some(word) = &file.watch {
        let said = match word.get_ref() {
            PercentWord::Number(number) => number.to_string(),
            PercentWord::Text(text) => text.clone(),
        };
        let at = word.span().start;
        if file.always {
            return Err(problem(
                path,
                &text,
                at,
                "watch says nothing with always = true; take one",
            ));
        }
        watch = percent(&said)
            .map_err(|what| problem(path, &text, at, &format!("watch: {what}, such as \"25%\"")))?;
    }
    let mut half = args.kernel_half;
    if let Some(word) = &file.kernel_half {
        half = kernel_half(word.get_ref()).map_err(|what| {
            problem(path, &text, word.span().start, &format!("kernel_half: {what}"))
        })?;
    }
    Ok(GuardArgs {
        ports: file.ports,
        udp_ports,
        udp_rate: file.udp_rate.unwrap_or(args.udp_rate),
        udp_unproven: file.udp_unproven.unwrap_or(args.udp_unproven),
        cookie_secret: file.cookie_secret,
        always: file.always,
        watch,
        generic: file.generic,
        pin: file.pin,
        ignore_rules: file.ignore_rules,
        kernel_half: half,
        ..args.clone()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: GuardArgs,
    }

    fn said(text: &str) -> Result<GuardArgs, String> {
        let path = std::env::temp_dir().join(format!(
            "floodwall-guard-{}-{:x}.toml",
            std::process::id(),
            text.len()
        ));
        std::fs::write(&path, text).unwrap();
        let Line { args } = Line::parse_from(["guard", "eth0"]);
        let read =
            read(&args, &path).map_err(|error| error.replace(&path.display().to_string(), "file"));
        std::fs::remove_file(path).unwrap();
        read
    }

    #[test]
    fn a_file_says_what_flags_say() {
        let text = "ports = [443, 22]\nudp = [123, \"53:dns\"]\nwatch = \"50%\"\npin = true\n\
                    kernel_half = \"napi-thread\"\n";
        let args = said(text).unwrap();
        let Line { args: flags } = Line::parse_from([
            "guard",
            "eth0",
            "--port",
            "443",
            "--port",
            "22",
            "--udp",
            "123",
            "--udp",
            "53:dns",
            "--watch",
            "50%",
            "--pin",
            "--kernel-half",
            "napi-thread",
        ]);
        assert_eq!(format!("{args:?}"), format!("{flags:?}"));
    }

    #[test]
    fn an_error_has_its_place_and_the_remedy() {
        for (text, words) in [
            (
                "ports = [443]\nport = 22\n",
                "file:2:1: unknown field `port`, expected one of `ports`",
            ),
            ("ports = [70000]\n", "file:1:10: invalid value"),
            ("udp = [\n  \"53:tls\",\n]\n", "file:2:3: udp: \"tls\" is neither dns nor a2s; for"),
            ("always = true\nwatch = 25\n", "file:2:9: watch says nothing with always = true"),
            ("watch = \"120%\"\n", "file:1:9: watch: a number from 1 to 99 is wanted, such as"),
            ("kernel_half = \"auto\"\n", "file:1:15: kernel_half: \"auto\" is neither leave nor"),
            ("ports = [443\n", "file:"),
        ] {
            let error = said(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
