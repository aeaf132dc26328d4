//! Whether what the kernel loaded is what was asked for.
//!
//! Called when a device opens.

use super::CookieProgramPlan;
use crate::af_xdp::steering::QueueSteering;
use crate::error::DeviceError;

impl CookieProgramPlan {
    /// Whether what must be is there.
    pub(crate) fn validate(&self, name: &str, steering: &QueueSteering) -> Result<(), DeviceError> {
        if !self.must_answer || steering.cookies().is_some() {
            return Ok(());
        }
        Err(DeviceError::Unsupported {
            device: name.to_owned(),
            missing: "SYN cookies at the interface",
            remedy: "they need Linux 5.18 and CAP_BPF; or ask for `--first-line filter`",
        })
    }
}
