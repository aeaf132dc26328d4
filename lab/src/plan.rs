//! A plan: what varies, what is held, what is claimed, and what others have published.
//!
//! Read from TOML, either one that the program carries ([`listed`]) or a file. The frame reads
//! everything except `vary` and `hold`, which belong to the experiment ([`Plan::read`]). Invariant:
//! a plan that was read has a title, seeds, claims with a direction each, and tables with rows as
//! wide as their columns.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::claim::Claim;
use crate::error::LabError;
use crate::table::Table;

/// The plans that are part of the program: name and text.
const PLANS: &[(&str, &str)] = &[
    ("fib-gc", include_str!("../plans/fib-gc.toml")),
    ("first-line", include_str!("../plans/first-line.toml")),
    ("first-line-router", include_str!("../plans/first-line-router.toml")),
    ("grace-period", include_str!("../plans/grace-period.toml")),
    ("guard", include_str!("../plans/guard.toml")),
    ("header-pull", include_str!("../plans/header-pull.toml")),
    ("route-flood", include_str!("../plans/route-flood.toml")),
    ("starvation", include_str!("../plans/starvation.toml")),
    ("syn-flood", include_str!("../plans/syn-flood.toml")),
    ("udp-flood", include_str!("../plans/udp-flood.toml")),
    ("xdp-flood", include_str!("../plans/xdp-flood.toml")),
];

/// How much of a plan is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Size {
    /// All of it.
    #[default]
    Full,
    /// So little that tests can afford it. The claims are the same.
    Quick,
}

/// How often and how much, in one size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Amount {
    /// The run is repeated with so many seeds: 1, 2, 3 and so on.
    pub seeds: u64,
    /// What the experiment wants to know.
    #[serde(flatten)]
    pub settings: toml::Table,
}

/// Figures published by others, with their source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The table of ours that it is printed beside: its title up to the colon.
    pub beside: String,
    /// What it shows.
    pub title: String,
    /// Author and place of publication.
    pub source: String,
    /// The columns' names.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

impl Published {
    /// Whether its rows can stand under those of `table`: the columns are the same.
    #[must_use]
    pub fn fits(&self, table: &Table) -> bool {
        self.columns == table.columns
    }

    /// `table` with the published row under each row that is named after it.
    #[must_use]
    pub fn under(&self, table: &Table) -> Table {
        let mut both = Table { rows: Vec::new(), ..table.clone() };
        for row in &table.rows {
            both.rows.push(row.clone());
            let name = |row: &Vec<String>| row.first().cloned().unwrap_or_default();
            if let Some(theirs) = self.rows.iter().find(|r| name(row).starts_with(&name(r))) {
                let cells = theirs.iter().skip(1).cloned();
                both.rows.push(core::iter::once("    published".to_owned()).chain(cells).collect());
            }
        }
        let notes = [table.note.as_str(), self.source.as_str()];
        both.note =
            notes.into_iter().filter(|n| !n.is_empty()).collect::<Vec<_>>().join("; published: ");
        both
    }

    /// As a table, with its source as the note.
    #[must_use]
    pub fn table(&self) -> Table {
        Table {
            title: format!("{} (published)", self.title),
            columns: self.columns.clone(),
            rows: self.rows.clone(),
            note: self.source.clone(),
        }
    }
}

/// An experiment's plan as read from TOML.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its name, also of its folder of results.
    pub name: String,
    /// Which experiment runs it.
    pub experiment: String,
    /// One line: the question.
    pub question: String,
    /// What varies: the experiment's words.
    pub vary: toml::Table,
    /// What is held: the experiment's words.
    pub hold: toml::Table,
    /// How much in a whole run.
    pub full: Amount,
    /// How much in a quick one.
    pub quick: Amount,
    /// What is claimed.
    #[serde(rename = "claim")]
    pub claims: Vec<Claim>,
    /// What others found.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The text it was read from, kept with the results.
    #[serde(skip)]
    pub text: String,
}

/// A plan of the program, for `floodwall lab list`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The question that it answers.
    pub question: String,
    /// How many claims it has.
    pub claims: usize,
}

/// The plans that the program carries.
///
/// # Errors
/// None that a tested program shows: a plan of its own is not readable.
pub fn listed() -> Result<Vec<Listed>, LabError> {
    let plans = PLANS.iter().map(|(name, text)| Plan::parse(name, text));
    plans
        .map(|plan| {
            let Plan { name, question, claims, .. } = plan?;
            Ok(Listed { name, question, claims: claims.len() })
        })
        .collect()
}

impl Plan {
    /// The program's own plan of that name, else the file of that path.
    ///
    /// # Errors
    /// There is neither, or it is no plan.
    pub fn load(name: &str) -> Result<Self, LabError> {
        if let Some((_, text)) = PLANS.iter().find(|(own, _)| *own == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        if path.extension().is_none_or(|ext| ext != "toml") {
            return Err(LabError::NoPlan(name.to_owned()));
        }
        let text = fs::read_to_string(path)
            .map_err(|source| LabError::File { path: path.to_owned(), source })?;
        Self::parse(name, &text)
    }

    /// Reads a plan; `origin` is what errors call it.
    ///
    /// # Errors
    /// It is no plan, with line and column where TOML has them.
    pub fn parse(origin: &str, text: &str) -> Result<Self, LabError> {
        let wrong = |what: String| LabError::Plan { plan: origin.to_owned(), what };
        let mut plan: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        text.clone_into(&mut plan.text);
        let named = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if plan.name.is_empty() || !plan.name.chars().all(named) {
            return Err(wrong(format!("the name `{}` is no folder's: a-z, 0-9, -", plan.name)));
        }
        if plan.full.seeds == 0 || plan.quick.seeds == 0 {
            return Err(wrong("seeds = 0 measures nothing: write 1 or more".to_owned()));
        }
        if plan.claims.is_empty() {
            return Err(wrong("it claims nothing, so no run of it can fail".to_owned()));
        }
        if let Some(claim) = plan.claims.iter().find(|claim| claim.bounds().is_empty()) {
            return Err(wrong(format!(
                "claim {}: no direction: write equals, at_least, at_most, above or below",
                claim.id
            )));
        }
        let uneven = |p: &&Published| p.rows.iter().any(|row| row.len() != p.columns.len());
        if let Some(table) = plan.published.iter().find(uneven) {
            return Err(wrong(format!(
                "published {}: a row is not as wide as columns",
                table.title
            )));
        }
        Ok(plan)
    }

    /// How much is to be done in a size.
    #[must_use]
    pub const fn amount(&self, size: Size) -> &Amount {
        match size {
            Size::Full => &self.full,
            Size::Quick => &self.quick,
        }
    }

    /// A part of the plan in the experiment's own types.
    ///
    /// # Errors
    /// It does not say what the experiment needs; `part` is what the error calls it.
    pub fn read<T: DeserializeOwned>(
        &self,
        part: &str,
        table: &toml::Table,
    ) -> Result<T, LabError> {
        let wrong = |error: toml::de::Error| LabError::Plan {
            plan: self.name.clone(),
            what: format!("[{part}]: {}", error.message()),
        };
        toml::Value::Table(table.clone()).try_into().map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"x\"\nexperiment = \"x\"\nquestion = \"?\"\n[vary]\n[hold]\n\
                        [full]\nseeds = 2\n[quick]\nseeds = 1\n\
                        [[claim]]\nid = \"c\"\nsays = \"s\"\nmeasure = \"m\"\nequals = 1\n";

    #[test]
    fn every_plan_of_the_program_is_readable_and_called_by_its_name() {
        for (name, text) in PLANS {
            assert_eq!(Plan::parse(name, text).unwrap().name, *name);
        }
        assert_eq!(listed().unwrap().len(), PLANS.len());
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said() {
        assert!(Plan::parse("p", GOOD).is_ok());
        for (from, to, says) in [
            ("equals = 1\n", "", "no direction"),
            ("equals = 1\n", "equal = 1\n", "unknown field"),
            ("seeds = 2", "seeds = 0", "measures nothing"),
            ("name = \"x\"", "name = \"../x\"", "no folder's"),
            ("[vary]\n", "", "missing field `vary`"),
        ] {
            let error = Plan::parse("p", &GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
        assert!(matches!(Plan::load("nosuch"), Err(LabError::NoPlan(_))));
        assert!(matches!(Plan::load("nosuch.toml"), Err(LabError::File { .. })));
    }
}
