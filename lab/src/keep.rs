//! Raw results on disk: plan, machine, commit, seeds, every number, the report and its pictures.
//!
//! Called by the program after a run. Where they go: the folder that the user names; else, inside a
//! checkout of the repository, `lab/results/<plan>/<date>-<commit>/` for whole runs; else nowhere.
//! An installed program writes nothing unless requested.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::machine;
use crate::plan::{Plan, Size};
use crate::plot::Plot;
use crate::report::Report;

/// The data of a result's plots, by the name of the picture.
const PLOTS: &str = "plots.json";

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
    if !report.plots.is_empty() {
        let data: BTreeMap<&String, &Plot> = report.plots.iter().map(|(f, p)| (f, p)).collect();
        files.push((PLOTS.to_owned(), serde_json::to_string(&data)? + "\n"));
    }
    for (name, plot) in &report.plots {
        files.push((name.clone(), plot.svg()?));
    }
    fs::create_dir_all(folder).map_err(refused(folder))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(refused(&path))?;
    }
    let files = files.into_iter().map(|(name, _)| name).collect();
    Ok(Kept { folder: folder.to_owned(), files })
}

/// Draws the plots of kept results again, from the data beside them.
///
/// # Errors
/// The folder has no data of plots, or a file cannot be written; those before it are.
pub fn redraw(folder: &Path) -> Result<Kept, LabError> {
    let path = folder.join(PLOTS);
    let text = fs::read_to_string(&path).map_err(refused(&path))?;
    let plots: BTreeMap<String, Plot> = serde_json::from_str(&text)?;
    let mut files = Vec::new();
    for (name, plot) in plots {
        // The data comes from a file: a picture stays in its folder.
        if Path::new(&name).file_name().is_none_or(|last| last != name.as_str()) {
            let what = format!("{}: {name:?} is no file name", path.display());
            return Err(LabError::Plot(what));
        }
        let path = folder.join(&name);
        fs::write(&path, plot.svg()?).map_err(refused(&path))?;
        files.push(name);
    }
    Ok(Kept { folder: folder.to_owned(), files })
}

fn refused(path: &Path) -> impl FnOnce(std::io::Error) -> LabError + use<> {
    let path = path.to_owned();
    move |source| LabError::File { path, source }
}
