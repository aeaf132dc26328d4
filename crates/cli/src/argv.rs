//! `--socket` at every place of the command line: moved behind the command's name before clap
//! looks.
//!
//! The words of `route` and `rule` are ip(8)'s, in which an option behind them would be a word of
//! its own; and an option before the command's name belongs to no command. Invariant: nothing else
//! moves.

use std::ffi::OsString;

const SOCKET_FLAG: &str = "--socket";

/// The arguments, with `--socket PATH` or `--socket=PATH` right behind the command's name.
pub(crate) fn arranged(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let (mut all, mut moved) = (Vec::new(), Vec::new());
    let mut args = args.into_iter();
    all.extend(args.next());
    while let Some(arg) = args.next() {
        let text = arg.to_string_lossy();
        match text.strip_prefix(SOCKET_FLAG) {
            Some("") => match args.next() {
                Some(path) => moved = vec![arg, path],
                // Clap says what lacks.
                None => all.push(arg),
            },
            Some(rest) if rest.starts_with('=') => moved = vec![arg],
            _ => all.push(arg),
        }
    }
    let is_word = |arg: &OsString| !arg.to_string_lossy().starts_with('-');
    let command = all.iter().skip(1).position(is_word).map_or(all.len(), |at| at + 2);
    all.splice(command..command, moved);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_stands_behind_the_command_wherever_it_stood() {
        for line in [
            "floodwall --socket /x route show table 7",
            "floodwall route --socket /x show table 7",
            "floodwall route show --socket /x table 7",
            "floodwall route show table 7 --socket /x",
        ] {
            let args = arranged(line.split(' ').map(OsString::from));
            assert_eq!(
                args,
                ["floodwall", "route", "--socket", "/x", "show", "table", "7"],
                "{line}"
            );
        }
        let args = arranged(["floodwall", "r", "-4", "show", "--socket=/x"].map(OsString::from));
        assert_eq!(args, ["floodwall", "r", "--socket=/x", "-4", "show"]);
        for line in ["floodwall", "floodwall stat", "floodwall stat --socket", "floodwall -V"] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(arranged(words.clone()), words, "{line}");
        }
    }
}
