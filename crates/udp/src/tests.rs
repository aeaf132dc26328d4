//! Behaviour of the whole crate, through its public face.
