//! `FirstLinePlace`: whether a program refuses and answers at the interface at this moment.
//!
//! Reported by `Device::first_line`, shown by `floodwall top` and in reports.

/// Whether a program at the interface drops or answers packets before they reach the device's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FirstLinePlace {
    /// There is none: every packet reaches the worker.
    #[default]
    None,
    /// It is at the interface.
    Attached,
    /// It is loaded, and attached once a flood begins.
    OnDemand,
}

impl FirstLinePlace {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Attached => "attached",
            Self::OnDemand => "on-demand",
        }
    }
}
