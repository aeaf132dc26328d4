//! The units of `contrib/systemd`, read by systemd itself.

use std::path::Path;
use std::process::Command;

use crate::support::{BIN, Folder};

/// What `systemd-analyze verify` finds wrong with a unit; `None`, and said so, where there is none.
fn verified(unit: &Path, man: &Path) -> Option<String> {
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--recursive-errors=no"])
        .arg(unit)
        .env("MANPATH", man)
        .output();
    let Ok(output) = verify else {
        eprintln!("skipped: systemd-analyze (Debian: systemd) is not installed");
        return None;
    };
    assert!(output.status.success() || !output.stderr.is_empty(), "{output:?}");
    Some(String::from_utf8(output.stderr).unwrap())
}

/// With the man page that `floodwall man` writes, as a package would install it, and the built
/// command in place of `/usr/bin/floodwall`.
#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("man").arg("--version").output().is_err() {
        return eprintln!("skipped: man (Debian: man-db) is not installed");
    }
    let folder = Folder::new("units");
    let man = folder.0.join("man");
    std::fs::create_dir_all(man.join("man1")).unwrap();
    let page = Command::new(BIN).arg("man").output().unwrap();
    assert!(page.status.success() && page.stdout.starts_with(b".ie"), "{page:?}");
    std::fs::write(man.join("man1/floodwall.1"), &page.stdout).unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    for name in ["floodwall@.service", "floodwall-guard@.service"] {
        let unit = std::fs::read_to_string(units.join(name)).unwrap();
        assert!(unit.contains("/usr/bin/floodwall") && unit.contains("man:floodwall(1)"));
        let unit = unit.replace("/usr/bin/floodwall", BIN);
        let path = folder.0.join(name);
        std::fs::write(&path, &unit).unwrap();
        let Some(said) = verified(&path, &man) else { return };
        assert_eq!(said, "", "{name}");
        // And it would find something.
        for (right, wrong) in [("Type=notify", "Typ=notify"), ("man:floodwall", "man:fluttwall")] {
            std::fs::write(&path, unit.replace(right, wrong)).unwrap();
            let said = verified(&path, &man).unwrap();
            assert!(!said.is_empty(), "{name} with {wrong}");
        }
    }
}
