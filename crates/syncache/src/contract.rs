//! The contract: what every `HalfOpen` must do.
