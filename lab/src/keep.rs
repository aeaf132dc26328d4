//! Raw results on disk: plan, machine, commit, seeds, every number, the report and its pictures.
//!
//! Called by the program after a run. Where they go: the folder that the user names; else, inside a
//! checkout of the repository, `lab/results/<plan>/<date>-<commit>/` for whole runs; else nowhere.
//! An installed program writes nothing unless requested.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::machine;
use crate::plan::{Plan, Size};
use crate::report::Report;

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The folder.
    pub folder: PathBuf,
    /// The files in it.
    pub files: Vec<String>,
}

/// The folder of a run's results where the user names none. A day's second run of the same commit
/// replaces the first.
#[must_use]
pub fn results_folder(report: &Report) -> Option<PathBuf> {
    if report.size == Size::Quick {
        return None;
    }
    let run = format!("{}-{}", report.machine.date, report.machine.commit);
    Some(machine::repository()?.join("lab/results").join(&report.plan).join(run))
}

/// Writes the results into `folder`, which is made where it is missing.
///
/// # Errors
/// A file cannot be written; those before it are.
pub fn keep(plan: &Plan, report: &Report, folder: &Path) -> Result<Kept, LabError> {
    let mut files = vec![
        ("plan.toml".to_owned(), plan.text.clone()),
        ("report.txt".to_owned(), report.to_string()),
        ("report.json".to_owned(), report.to_json()? + "\n"),
        ("metrics.csv".to_owned(), report.to_csv()),
    ];
    files.extend(report.plots.iter().cloned());
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| LabError::File { path, source }
    };
    fs::create_dir_all(folder).map_err(refused(folder))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(refused(&path))?;
    }
    let files = files.into_iter().map(|(name, _)| name).collect();
    Ok(Kept { folder: folder.to_owned(), files })
}
