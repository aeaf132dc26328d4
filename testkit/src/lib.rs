//! What only tests need.
