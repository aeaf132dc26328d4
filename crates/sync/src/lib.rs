//! The only lock-free memory of the Floodwall stack.
