//! Scenarios across crates; see the tests folder beside this file.
