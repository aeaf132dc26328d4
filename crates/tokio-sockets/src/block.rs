//! Waiting for a worker's answer in a call that cannot await.
//!
//! Called by the options' setters, which have tokio's synchronous signatures. A worker answers
//! within a round: microseconds, or the time of one round where it is busy.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a worker may take.
const WORKER_PATIENCE: Duration = Duration::from_secs(5);

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until `what` is done.
///
/// # Errors
/// Its own, and `TimedOut`.
#[expect(clippy::disallowed_methods, reason = "a program's thread waits in real time")]
pub(crate) fn block_on<T>(what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut what = pin!(what);
    let waker = Waker::from(Arc::new(UnparkWaker(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let end = Instant::now() + WORKER_PATIENCE;
    loop {
        if let Poll::Ready(done) = what.as_mut().poll(&mut cx) {
            return done;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::park_timeout(left);
    }
}
