//! The kernel's server: one thread, epoll, level-triggered.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::talk::{Next, PIECE, Pages, Talk};

/// Serves until it is killed.
pub(crate) fn serve() {
    let listener = TcpListener::bind("[::]:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    let watch = epoll::create(CreateFlags::CLOEXEC).unwrap();
    epoll::add(&watch, &listener, EventData::new_u64(0), EventFlags::IN).unwrap();
    let mut talks: Vec<Option<(File, Talk, Next)>> = Vec::new();
    let (pages, mut buffer) = (Pages::new(), vec![0; PIECE]);
    let none = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
    let mut events = [none; 64];
    println!("serving");
    loop {
        let found = match epoll::wait(&watch, &mut events[..], None) {
            Ok(found) => found,
            Err(Errno::INTR) => continue,
            Err(error) => panic!("{error}"),
        };
        for event in events.iter().take(found) {
            let number = event.data.u64() as usize;
            if number == 0 {
                accept(&listener, &watch, &mut talks);
                continue;
            }
            let place = &mut talks[number - 1];
            let Some((stream, talk, waits_for)) = place else { continue };
            let next = talk.serve(stream, &pages, &mut buffer, false);
            if next == Next::Close {
                *place = None;
                continue;
            }
            if next != *waits_for {
                let flags = if next == Next::Read { EventFlags::IN } else { EventFlags::OUT };
                epoll::modify(&watch, &*stream, EventData::new_u64(number as u64), flags).unwrap();
                *waits_for = next;
            }
        }
    }
}

/// Accepts all pending connections.
fn accept(listener: &TcpListener, watch: &OwnedFd, talks: &mut Vec<Option<(File, Talk, Next)>>) {
    while let Ok(stream) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        let free = talks.iter().position(Option::is_none).unwrap_or_else(|| {
            talks.push(None);
            talks.len() - 1
        });
        let data = EventData::new_u64(free as u64 + 1);
        epoll::add(watch, &stream, data, EventFlags::IN).unwrap();
        // Read and written, and closed by its drop: for that a file is as good as a socket.
        talks[free] = Some((File::from(stream), Talk::default(), Next::Read));
    }
}
