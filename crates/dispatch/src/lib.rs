//! The worker loop that runs engines on devices.
