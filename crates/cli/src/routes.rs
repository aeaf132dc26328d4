//! Routes and rules in iproute2's words: read, carried out, shown.
//!
//! Used from both ends of the control socket. The command (`cmd/route.rs`) parses the words first,
//! so that a syntax error is reported before the instance is contacted; the instance
//! (`routes/session.rs`) parses the same words again with the same code, and carries them out.
//! Invariant: one line is carried out completely or not at all, and so is a batch, unless it is
//! marked as forced.

pub(crate) mod apply;
pub(crate) mod document;
pub(crate) mod import;
pub(crate) mod names;
pub(crate) mod parse;
pub(crate) mod rule_words;
pub(crate) mod session;
mod word;

#[cfg(test)]
mod tests;
