//! Routes and rules in iproute2's words: read, carried out, shown.
//!
//! Used from both ends of the control socket. The command (`cmd/route.rs`) reads the words first,
//! so that what is wrong with them is said before anybody is asked; the instance
//! (`routes/session.rs`) reads the same words again with the same code, and carries them out.
//! Invariant: what one line asks for is carried out whole or not at all, and so is a batch, unless
//! it says that it wants to be forced.

pub(crate) mod apply;
pub(crate) mod document;
pub(crate) mod import;
pub(crate) mod names;
pub(crate) mod rule_words;
pub(crate) mod session;
pub(crate) mod words;

#[cfg(test)]
mod tests;
