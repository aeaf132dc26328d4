//! A small executor of one thread, as programs' runtimes are: tasks woken from inside go into its
//! own queue; those woken from outside go into an injection queue behind a lock, of which a busy
//! executor takes one in 31 polls, and each foreign wake writes its eventfd (both as tokio's
//! current-thread runtime does). So what a wake group saves can be seen without a runtime's help.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// How often a busy executor looks at what came from outside.
const FOREIGN_EVERY: u32 = 31;

thread_local! {
    static OWN: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}

struct Injection {
    queue: Mutex<VecDeque<usize>>,
    descriptor: OwnedFd,
    thread: ThreadId,
}

struct Task {
    index: usize,
    queued: AtomicBool,
    injection: Arc<Injection>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        if thread::current().id() == self.injection.thread {
            OWN.with_borrow_mut(|own| own.push_back(self.index));
        } else {
            self.injection.queue.lock().unwrap().push_back(self.index);
            let _ = rustix::io::write(&self.injection.descriptor, &1_u64.to_ne_bytes());
        }
    }
}

/// Runs all `futures` until `goals` of them have ended; `idle` is called where nothing is ready:
/// whether it has done something instead of a sleep.
pub(crate) fn run<'a>(
    futures: Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>,
    goals: usize,
    mut between: impl FnMut() -> bool,
) {
    let injection = Arc::new(Injection {
        queue: Mutex::new(VecDeque::new()),
        descriptor: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        thread: thread::current().id(),
    });
    let task = |index| {
        let (queued, injection) = (AtomicBool::new(true), Arc::clone(&injection));
        Arc::new(Task { index, queued, injection })
    };
    let tasks: Vec<_> = (0..futures.len()).map(task).collect();
    let wakers: Vec<_> = tasks.iter().map(|task| Waker::from(Arc::clone(task))).collect();
    let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
    OWN.with_borrow_mut(|own| own.extend(0..futures.len()));
    let (mut done, mut polls) = (0, 0_u32);
    let foreign = || injection.queue.lock().unwrap().pop_front();
    while done < goals {
        polls = polls.wrapping_add(1);
        let own = || OWN.with_borrow_mut(VecDeque::pop_front);
        let next = if polls % FOREIGN_EVERY == 0 { foreign().or_else(own) } else { own() };
        let Some(index) = next.or_else(foreign) else {
            if !between() {
                let mut fds = [PollFd::new(&injection.descriptor, PollFlags::IN)];
                let _ = poll(&mut fds, None);
                let _ = rustix::io::read(&injection.descriptor, &mut [0; 8]);
            }
            continue;
        };
        tasks[index].queued.store(false, Ordering::Release);
        let Some(future) = &mut futures[index] else { continue };
        if future.as_mut().poll(&mut Context::from_waker(&wakers[index])).is_ready() {
            futures[index] = None;
            done += usize::from(index < goals);
        }
    }
    OWN.with_borrow_mut(VecDeque::clear);
}
