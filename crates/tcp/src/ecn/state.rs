//! `EcnState`: the ECN state of one connection.
//!
//! Part of `Connection`; used by `ecn.rs`.

/// The ECN state of one connection.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EcnState {
    /// The peer's segments were marked: ECE is set on every segment until the peer sends CWR.
    pub(super) echo: bool,
    /// The window was reduced: CWR is set on the next new data.
    pub(super) reduced: bool,
    /// The segment built last is ECN-capable.
    pub(super) capable: bool,
}
