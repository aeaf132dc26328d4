//! What a connection has waited for, as Linux's `TCP_INFO` counts it: microseconds in which it had
//! something to send, and those of them in which the peer's window, or its own send buffer, was in
//! the way.
//!
//! Part of the back end in memory. Nothing changes between two of its steps, so that a look at each
//! step is exact.

use std::time::Duration;

use floodwall_tcp::Info;

/// Time by what was waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    busy: Duration,
    window: Duration,
    buffer: Duration,
    /// The last write did not fit.
    pub(super) has_no_space: bool,
}

impl Times {
    /// So much time passes with the connection in this state.
    pub(super) fn pass(&mut self, time: Duration, info: &Info) {
        if info.outstanding == 0 && info.unsent == 0 {
            return;
        }
        self.busy += time;
        let may_send = info.window > info.outstanding;
        if info.unsent > 0 && may_send && info.usable < info.unsent.min(info.snd_mss) {
            self.window += time;
        } else if info.unsent == 0 && may_send && self.has_no_space {
            self.buffer += time;
        }
    }

    /// The fields of `TCP_INFO`.
    pub(super) fn fields(self) -> [(String, i64); 3] {
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        [
            ("tcpi_busy_time".to_owned(), micros(self.busy)),
            ("tcpi_rwnd_limited".to_owned(), micros(self.window)),
            ("tcpi_sndbuf_limited".to_owned(), micros(self.buffer)),
        ]
    }
}
