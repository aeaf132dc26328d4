//! Import cycles between the modules of one crate, and the bound of each crate.
//!
//! Called by `words`, which prints the figures, and by `tidy`, which fails where one grew. A module
//! imports another where its code has a path of it, in a `use` or elsewhere; a re-export counts as
//! a path to the module that has the item. What only tests import does not count, and neither does
//! `mod child;`. Macros are not expanded.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// Most modules of one cycle where a crate may have any. In `remote` a request carries a handle,
/// and a handle sends requests; the other figures are to shrink.
const CYCLES_MAX: &[(&str, usize)] = &[
    ("bpf", 12),
    ("dhcp", 2),
    ("dispatch", 4),
    ("drill", 6),
    ("fib", 8),
    ("guard", 4),
    ("ip", 5),
    ("packet", 10),
    ("pktgen", 14),
    ("remote", 6),
    ("schedule", 2),
    ("stack", 2),
    ("sync", 3),
    ("syncache", 2),
    ("tokio-sockets", 5),
    ("wire", 2),
];

/// The path of a module below its crate; empty for the crate's root.
type ModulePath<'a> = Vec<&'a str>;
/// The names of a path as written, and the name by which a `use` makes it known.
type WrittenPath<'a> = (Vec<&'a str>, &'a str);

/// The largest cycle of each crate that has code below `crates/`, with its modules, and the bound.
pub(crate) fn largest(sources: &[Source]) -> Vec<(String, Vec<String>, usize)> {
    let mut crates: BTreeMap<&str, CrateModules<'_>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        let Some((name, file)) = source.path.strip_prefix("crates/").and_then(|path| {
            let (name, rest) = path.split_once('/')?;
            Some((name, rest.strip_prefix("src/")?.strip_suffix(".rs")?))
        }) else {
            continue;
        };
        crates.entry(name).or_default().add(module_of(file), source);
    }
    let bound = |name: &str| CYCLES_MAX.iter().find(|(of, _)| *of == name).map_or(1, |(_, n)| *n);
    let cycle = |(name, modules): (&str, CrateModules<'_>)| {
        (name.to_owned(), modules.largest_cycle(), bound(name))
    };
    crates.into_iter().map(cycle).collect()
}

fn module_of(file: &str) -> ModulePath<'_> {
    let mut path: ModulePath<'_> = file.split('/').collect();
    if path == ["lib"] || path == ["main"] || path.last() == Some(&"mod") {
        path.pop();
    }
    path
}

/// The modules of one crate: what each has written, and what it exports of others.
#[derive(Default)]
struct CrateModules<'a> {
    written: BTreeMap<ModulePath<'a>, Vec<Vec<&'a str>>>,
    exports: BTreeMap<(ModulePath<'a>, &'a str), Vec<&'a str>>,
}

impl<'a> CrateModules<'a> {
    fn add(&mut self, module: ModulePath<'a>, source: &'a Source) {
        let lines = source.code.lines().enumerate();
        let lines = lines.filter(|(number, _)| !source.is_test_line(*number));
        let tokens: Vec<&str> = lines.flat_map(|(_, line)| tokens(line)).collect();
        let mut found = Vec::new();
        for at in 0..tokens.len() {
            let starts = matches!(tokens[at], "crate" | "super" | "self")
                && tokens.get(at + 1) == Some(&"::");
            // `pub(in path)` imports nothing.
            if starts && (at == 0 || !matches!(tokens[at - 1], "::" | "in")) {
                tree(&tokens, at, &[], &mut found);
            }
            if tokens[at] == "use" && at > 0 && matches!(tokens[at - 1], "pub" | ")") {
                let mut exported = Vec::new();
                tree(&tokens, at + 1, &[], &mut exported);
                for (path, name) in exported {
                    self.exports.insert((module.clone(), name), path);
                }
            }
        }
        self.written.insert(module, found.into_iter().map(|(path, _)| path).collect());
    }

    /// The module that has what a path of `from` names.
    fn resolve(&self, from: &[&'a str], path: &[&'a str], depth: u8) -> Option<ModulePath<'a>> {
        let (mut module, mut rest) = match path.split_first()? {
            (&"crate", rest) => (Vec::new(), rest),
            (&"self", rest) => (from.to_vec(), rest),
            (&"super", _) => (from.to_vec(), path),
            (first, _) => {
                let child: ModulePath<'_> = from.iter().chain([first]).copied().collect();
                self.written.contains_key(&child).then(|| (from.to_vec(), path))?
            }
        };
        while let Some((&"super", after)) = rest.split_first() {
            module.pop();
            rest = after;
        }
        while let Some((first, after)) = rest.split_first() {
            module.push(first);
            if !self.written.contains_key(&module) {
                module.pop();
                break;
            }
            rest = after;
        }
        let export = rest.first().and_then(|name| self.exports.get(&(module.clone(), *name)));
        let exported = export.filter(|to| depth > 0 && to.as_slice() != path);
        Some(exported.and_then(|to| self.resolve(&module, to, depth - 1)).unwrap_or(module))
    }

    /// The modules of the largest cycle; none where there is no cycle.
    fn largest_cycle(&self) -> Vec<String> {
        let imports: BTreeMap<&ModulePath<'_>, BTreeSet<ModulePath<'_>>> = self
            .written
            .iter()
            .map(|(module, paths)| {
                let to = paths.iter().filter_map(|path| self.resolve(module, path, 6));
                (module, to.filter(|to| !to.is_empty() && to != module).collect())
            })
            .collect();
        let reach = |from: &ModulePath<'a>| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(module) = next.pop() {
                for to in imports.get(&module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to.clone());
                    }
                }
            }
            seen
        };
        let reached: BTreeMap<&ModulePath<'_>, BTreeSet<ModulePath<'_>>> =
            imports.keys().map(|module| (*module, reach(module))).collect();
        let cycle = |(module, to): (&&ModulePath<'a>, &BTreeSet<ModulePath<'a>>)| {
            let back =
                |to: &&ModulePath<'a>| reached.get(to).is_some_and(|to| to.contains(*module));
            to.iter().filter(back).map(|module| module.join("::")).collect::<Vec<String>>()
        };
        reached.iter().map(cycle).max_by_key(Vec::len).unwrap_or_default()
    }
}

/// Identifiers, `::` and single other characters, without spaces.
fn tokens(line: &str) -> Vec<&str> {
    let (mut out, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let word = crate::source::first_word(rest).len();
        let colons = if rest.starts_with("::") { 2 } else { 0 };
        let one = rest.chars().next().map_or(1, char::len_utf8);
        let (token, after) =
            rest.split_at(word.max(colons).max(usize::from(word + colons == 0) * one));
        out.push(token);
        rest = after.trim_start();
    }
    out
}

/// Adds the paths of a `use` tree, or the one path of an expression, that begins at `at`. Returns
/// where it ends.
fn tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    prefix: &[&'a str],
    out: &mut Vec<WrittenPath<'a>>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at) {
            Some(&"{") => {
                at += 1;
                while let Some(token) = tokens.get(at).filter(|token| **token != "}") {
                    at = if *token == "," {
                        at + 1
                    } else {
                        tree(tokens, at, &path, out).max(at + 1)
                    };
                }
                return at + 1;
            }
            Some(word) if !crate::source::first_word(word).is_empty() => path.push(word),
            _ => break,
        }
        at += 1;
        if tokens.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    let mut name = path.last().copied().unwrap_or_default();
    if tokens.get(at) == Some(&"as") {
        name = tokens.get(at + 1).copied().unwrap_or(name);
        at += 2;
    }
    out.push((path, name));
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(files: &[(&str, &str)]) -> Vec<String> {
        let source = |(file, text): &(&str, &str)| {
            Source::new(&format!("crates/x/src/{file}.rs"), (*text).to_owned())
        };
        let sources: Vec<Source> = files.iter().map(source).collect();
        largest(&sources).remove(0).1
    }

    #[test]
    fn a_cycle_is_found_through_uses_paths_and_exports() {
        let direct =
            [("a", "use crate::{c, b::B};"), ("b", "fn f() { crate::a::g(); }"), ("c", "")];
        assert_eq!(cycle(&direct), ["a", "b"]);
        let exported = [
            ("a", "use super::B;"),
            ("lib", "pub use self::b::C as B;"),
            ("b", "use crate::a::A;\npub struct C;"),
        ];
        assert_eq!(cycle(&exported), ["a", "b"]);
        let inner =
            [("a", "use self::b::B;"), ("a/b", "use super::super::c::C;"), ("c", "use crate::a;")];
        assert_eq!(cycle(&inner), ["a", "a::b", "c"]);
    }

    #[test]
    fn tests_declarations_and_visibility_are_no_imports() {
        let child = [("a", "mod b;\npub(in crate::a::b) struct A;"), ("a/b", "use super::A;")];
        assert!(cycle(&child).is_empty(), "{:?}", cycle(&child));
        let test =
            [("a", "use crate::b::B;"), ("b", "#[cfg(test)]\nmod tests {\n use crate::a::A;\n}")];
        assert!(cycle(&test).is_empty());
        let up = [
            ("a", "use self::b::c::C;"),
            ("a/b", ""),
            ("a/b/c", "use super::super::super::d::D;"),
            ("d", ""),
        ];
        assert!(cycle(&up).is_empty());
    }
}
