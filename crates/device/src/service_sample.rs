//! `ServiceSample`: for which services the last frames were that ended at an interface.
//!
//! Reported by `Device::sampled_services`, shown by `floodwall explain`, `top` and the log.

/// Sampled frames of one reason and one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceSample {
    /// The name of the reason's count, as of `DeviceStats::named`.
    pub count: &'static str,
    /// The number of the protocol and the destination port; zero for frames without ports.
    pub service: (u8, u16),
    /// How many of the sample were for it.
    pub frames: u64,
}

impl ServiceSample {
    /// Adds it to samples of which each has another reason or service.
    pub fn add_to(self, all: &mut Vec<Self>) {
        let same = |it: &&mut Self| (it.count, it.service) == (self.count, self.service);
        match all.iter_mut().find(same) {
            Some(it) => it.frames += self.frames,
            None => all.push(self),
        }
    }
}
