//! Files of the repository that are not Rust: links and quoted paths of the documents lead
//! somewhere, and no program or archive lies outside of `data/`.
//!
//! Called by `tidy`. Links to other sites are not followed.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Endings of compiled or packed files.
const BINARIES: &[&str] = &["a", "deb", "dll", "exe", "gz", "o", "so", "tar", "whl", "xz", "zip"];

/// Folders at the root from which documents give paths (`tests/` is also a folder of each crate).
const ROOT_FOLDERS: &[&str] =
    &["contrib", "crates", "data", "docs", "lab", "specs", "testkit", "xtask"];
/// Characters of commands and patterns: quoted text that has one of them is no path.
const UNQUOTABLE: &[char] = &[' ', '*', '<', '{', '\n', '…', ':'];

/// One complaint for each broken link and each binary.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root).output();
    // A tree without git (a package) has nothing to compare with.
    let Ok(listed) = listed else { return Ok(Vec::new()) };
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut out = Vec::new();
    for path in listed.lines() {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        if BINARIES.contains(&ending) && !path.starts_with("data/") {
            out.push(format!("{path}: a binary outside of data/. Remove it."));
        }
        let full = root.join(path);
        if ending == "md" && full.exists() {
            let text = fs::read_to_string(&full).map_err(|error| format!("{path}: {error}"))?;
            let folder = full.parent().unwrap_or(root);
            out.extend(broken(&text, folder).map(|link| format!("{path}: {link} leads nowhere.")));
            out.extend(moved(&text, root).map(|gone| format!("{path}: there is no `{gone}`.")));
        }
    }
    Ok(out)
}

/// The relative targets of a page that do not exist.
fn broken<'a>(text: &'a str, folder: &'a Path) -> impl Iterator<Item = &'a str> {
    targets(text).filter(|target| {
        let file = target.split('#').next().unwrap_or_default();
        !file.is_empty() && !file.contains("://") && !folder.join(file).exists()
    })
}

/// What stands between `](` and `)`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next())
}

/// The paths between backticks that do not exist: from the root of the repository, or a crate's
/// source file from the folder of crates (`stack/src/tap.rs`).
fn moved<'a>(text: &'a str, root: &'a Path) -> impl Iterator<Item = &'a str> {
    let paths = text.split('`').skip(1).step_by(2).filter(|quoted| !quoted.contains(UNQUOTABLE));
    paths.filter(|path| {
        let mut parts = path.split('/');
        let (first, second) = (parts.next().unwrap_or_default(), parts.next());
        let from_root = ROOT_FOLDERS.contains(&first) && second.is_some();
        let of_crate = second == Some("src") && root.join("crates").join(first).exists();
        from_root && !root.join(path).exists()
            || of_crate && !root.join("crates").join(path).exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "[a](src/links.rs) [b](none.md#x) [c](https://example.net/) [d](#head)";
        assert_eq!(broken(text, here).collect::<Vec<_>>(), ["none.md#x"]);
    }

    #[test]
    fn a_quoted_path_of_a_file_that_has_moved_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = "`crates/tcp/src/rtt.rs` `crates/tcp/src/gone.rs` `tcp/src/rtt.rs` \
                    `tcp/src/gone.rs` `cargo xtask tidy` `lab/plans/<name>.toml` `a/b.rs`";
        let gone: Vec<_> = moved(text, root).collect();
        assert_eq!(gone, ["crates/tcp/src/gone.rs", "tcp/src/gone.rs"]);
    }
}
