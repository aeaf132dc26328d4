//! Files of the repository that are not Rust: links of the documents lead somewhere, and no
//! program or archive lies outside of `data/`.
//!
//! Called by `tidy`. Links to other sites are not followed.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Endings of compiled or packed files.
const BINARIES: &[&str] = &["a", "deb", "dll", "exe", "gz", "o", "so", "tar", "whl", "xz", "zip"];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = "[a](src/links.rs) [b](none.md#x) [c](https://example.net/) [d](#head)";
        assert_eq!(broken(text, here).collect::<Vec<_>>(), ["none.md#x"]);
    }
}
