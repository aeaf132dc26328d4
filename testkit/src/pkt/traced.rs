//! `Traced`: a back end that prints each packet and call.
//!
//! Wrapped around another one by `cargo xtask pkt -v`. It changes nothing and waits for nothing
//! beyond the script, except at the end: segments that the script did not expect are printed too.
//! Numbers are relative to the last SYN of each side, as scripts write them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::profile::Profile;
use super::runner::{Backend, Call, Errno, show};
use super::script::{ACK, Opt, SYN, Segment};
use super::segment::{Ends, decode};

/// A back end that prints each packet and call of the one that it wraps.
pub struct Traced<'a> {
    inner: &'a mut dyn Backend,
    say: &'a mut dyn FnMut(&str),
    /// The first numbers of the TCP under test and of the script.
    ours: u32,
    theirs: u32,
}

impl<'a> Traced<'a> {
    /// Prints a line for everything that passes to and from `inner`.
    pub fn new(inner: &'a mut dyn Backend, say: &'a mut dyn FnMut(&str)) -> Self {
        Self { inner, say, ours: 0, theirs: 0 }
    }

    /// Prints what was sent and not expected.
    pub fn end(mut self) {
        let now = self.inner.now();
        while let Some((at, packet)) = self.inner.next_packet(now) {
            self.tell(at, '>', &packet, " (unexpected)");
        }
    }

    fn tell(&mut self, at: Duration, way: char, packet: &[u8], remark: &str) {
        let (local, remote) = self.inner.addresses();
        let (local, remote) = if way == '>' { (local, remote) } else { (remote, local) };
        let ends = Ends { local: (local, 0), remote: (remote, 0) };
        let what = match decode(packet, &ends) {
            Some((ports, segment)) => {
                let segment = self.relative(way, segment);
                format!("{} > {} {}", ports.0, ports.1, show(&segment))
            }
            None => format!("{} bytes that are no segment", packet.len()),
        };
        (self.say)(&format!("{:>10.6} {way} {what}{remark}", at.as_secs_f64()));
    }

    /// A segment in numbers of the script.
    fn relative(&mut self, way: char, mut segment: Segment) -> Segment {
        let (mine, other) = match way {
            '>' => (&mut self.ours, self.theirs),
            _ => (&mut self.theirs, self.ours),
        };
        if segment.has(SYN) {
            *mine = segment.start;
        }
        segment.start = segment.start.wrapping_sub(*mine);
        let is_ack = segment.has(ACK);
        segment.ack = segment.ack.filter(|_| is_ack).map(|ack| ack.wrapping_sub(other));
        for option in &mut segment.options {
            if let Opt::Sack(blocks) = option {
                for (left, right) in blocks {
                    *left = left.wrapping_sub(other);
                    *right = right.wrapping_sub(other);
                }
            }
        }
        segment
    }
}

impl Backend for Traced<'_> {
    fn addresses(&self) -> (IpAddr, IpAddr) {
        self.inner.addresses()
    }

    fn now(&mut self) -> Duration {
        self.inner.now()
    }

    fn wait(&mut self, until: Duration) {
        self.inner.wait(until);
    }

    fn next_packet(&mut self, until: Duration) -> Option<(Duration, Vec<u8>)> {
        let (at, packet) = self.inner.next_packet(until)?;
        self.tell(at, '>', &packet, "");
        Some((at, packet))
    }

    fn patience(&self) -> Duration {
        self.inner.patience()
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        let at = self.inner.now();
        self.tell(at, '<', packet, "");
        self.inner.inject(packet)
    }

    fn call(&mut self, call: &Call) -> Result<i64, Errno> {
        let at = self.inner.now();
        let returned = self.inner.call(call);
        let says = match &returned {
            Ok(value) => value.to_string(),
            Err(Errno(name)) => name.clone(),
        };
        (self.say)(&format!("{:>10.6}   {call:?} = {says}", at.as_secs_f64()));
        returned
    }

    fn fields(&mut self, socket: i64) -> Result<BTreeMap<String, i64>, String> {
        self.inner.fields(socket)
    }

    fn command(&mut self, command: &str) -> Result<(), String> {
        self.inner.command(command)
    }

    fn profile(&self) -> Profile {
        self.inner.profile()
    }
}
