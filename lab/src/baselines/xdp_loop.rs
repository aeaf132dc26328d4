//! The bare loop: a program on an AF_XDP socket that answers datagrams, without a stack.
//!
//! Models: the echo programs that AF_XDP is usually measured with (`xdpsock` of the kernel's
//! `samples/bpf`, 2018, with its L2 forwarding turned into an answer): receive a batch, turn each
//! frame round in its place, send the batch, refill.
//! Simplified: the socket is the product's own device, so what it costs is the same on both sides;
//! lengths are not checked, and no checksum is verified (swapping addresses and ports changes
//! none). All of that makes the loop faster than a program on a real network could be.
//! Serves: the plan `xdp-flood`, what the stack costs beside doing nothing but the answer.

use std::io;
use std::time::Duration;

use floodwall_base::limits::BURST_MAX;
use floodwall_device::{Device, DeviceError};
use floodwall_packet::{Burst, PacketList, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long it waits for frames before it looks whether it is to end.
const WAIT: Duration = Duration::from_millis(20);
/// Bytes of a link header, and the offsets of a plain datagram's fields.
const LINK: usize = 14;
const KIND_AT: usize = 12;
const UDP: u8 = 17;

/// What the loop does with a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Sends it back.
    Answers,
    /// Forgets it.
    Drops,
}

/// Turns a plain datagram to `port` round, in its place: link addresses, addresses, ports. False
/// where it is anything else, which stays as it is.
#[must_use]
pub fn turn_round(frame: &mut [u8], port: u16) -> bool {
    let Some([high, low]) = frame.get(KIND_AT..LINK).and_then(|kind| kind.first_chunk()).copied()
    else {
        return false;
    };
    // Where addresses begin, how long one is, where the ports are, and the protocol field that
    // marks UDP.
    let (addresses, len, ports, protocol) = match [high, low] {
        [0x08, 0x00] if frame.get(LINK) == Some(&0x45) => (LINK + 12, 4, LINK + 20, LINK + 9),
        [0x86, 0xdd] => (LINK + 8, 16, LINK + 40, LINK + 6),
        _ => return false,
    };
    if frame.get(protocol) != Some(&UDP)
        || frame.get(ports + 2..ports + 4) != Some(&port.to_be_bytes())
    {
        return false;
    }
    for (at, len) in [(0, 6), (addresses, len), (ports, 2)] {
        let Some(both) = frame.get_mut(at..at + 2 * len) else { return false };
        let (one, other) = both.split_at_mut(len);
        one.swap_with_slice(other);
    }
    true
}

/// Serves datagrams to `port` until `ended` returns true; their number is passed to `served`.
///
/// # Errors
/// The device has gone, or the system refuses to wait.
pub fn serve(
    device: &mut dyn Device,
    pool: &Pool,
    (port, does): (u16, Does),
    ended: impl Fn() -> bool,
    served: impl Fn(u64),
) -> Result<(), DeviceError> {
    let (mut burst, mut departing) = (Burst::new(), PacketList::new());
    while !ended() {
        burst.set_limit(BURST_MAX);
        if device.receive(pool, &mut burst)? == 0 && !device.pending() {
            device.rest();
            wait(device).map_err(|source| DeviceError::Io {
                device: device.info().name.clone(),
                action: "wait",
                source,
            })?;
            continue;
        }
        let mut count = 0;
        for mut packet in burst.drain() {
            if packet.first_mut().is_some_and(|frame| turn_round(frame, port)) {
                count += 1;
                if does == Does::Answers {
                    departing.push_back(packet);
                }
            }
        }
        served(count);
        device.transmit(&mut departing)?;
        // What does not leave now is lost, as with any such loop.
        drop(departing.take());
    }
    Ok(())
}

fn wait(device: &dyn Device) -> io::Result<()> {
    let Some(descriptor) = device.readiness() else { return Ok(()) };
    let mut waited = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(WAIT.subsec_nanos()) };
    match poll(&mut waited, Some(&time)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
