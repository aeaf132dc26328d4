//! Captures of a running instance: `floodwall capture` on the instance's side.
//!
//! The control socket's server hands a connection over; a thread of its own installs a tap at every
//! worker, writes the records as pcapng with drop reason, interface and worker as comments, and
//! removes the taps again. Invariants: one capture at a time; it ends at its count, its time, when
//! its client is gone or does not read for [`CLIENT_PATIENCE`], and with the instance.
//!
//! # Under flood
//! Reachable by the owner's processes. Bound: one thread, the records of one tap a worker (8 MiB
//! each); packets that find no record are counted in the next one's comment. Packets lose the time
//! of a copy each, as long as a capture runs.

mod filter;

pub(crate) use self::filter::read_filter;

use std::io::{self, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use floodwall_base::Instant;
use floodwall_device::{AnnotatedPacket, AnnotatedWriter, Medium};
use floodwall_dispatch::{Clock, Control, ControlQueue, Shown, Stop, WorkerCommand};
use floodwall_stack::{Host, PacketTap, TapConfig, TapEvent, TapFilter, TapReader, TapRecord};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sources::{SourceSample, SourceShare};
use crate::threads::spawn_named;

/// How long a client may leave the stream unread.
const CLIENT_PATIENCE: Duration = Duration::from_secs(2);
/// How often records are looked for while there are none.
const RECORD_POLL: Duration = Duration::from_millis(20);
/// How long a worker may take for its tap.
const TAP_PATIENCE: Duration = Duration::from_secs(1);
/// How long sources are sampled, and bytes of each packet.
const SAMPLE_TIME: Duration = Duration::from_millis(200);
const SAMPLE_BYTES: usize = 128;
/// Packets of a sample, of each worker: a share of 2 % is twenty of them.
const SAMPLE_RECORDS: usize = 1024;
/// How often a sample is tried again while another one is taken.
const SAMPLE_TRIES: u32 = 25;
/// Records written before the others' are looked at.
const RECORDS_AT_ONCE: usize = 256;

/// Samples what arrives, and returns the source prefixes.
pub(crate) type Sampler = Box<dyn Fn() -> Vec<SourceShare> + Send + Sync>;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CaptureRequest {
    pub(crate) dropped: bool,
    pub(crate) count: u64,
    pub(crate) seconds: u64,
    pub(crate) snap_len: u32,
    /// The filter's words.
    pub(crate) filter: String,
}

impl CaptureRequest {
    /// As one line, without `capture`.
    pub(crate) fn line(&self) -> String {
        let Self { dropped, count, seconds, snap_len, filter } = self;
        format!("{} {count} {seconds} {snap_len} {filter}", u8::from(*dropped))
    }

    fn read(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        Some(Self {
            dropped: words.next()? == "1",
            count: words.next()?.parse().ok()?,
            seconds: words.next()?.parse().ok()?,
            snap_len: words.next()?.parse().ok()?,
            filter: words.next().unwrap_or("").to_owned(),
        })
    }
}

/// What captures need of the instance.
pub(crate) struct Captures {
    /// Those of the configuration: interface 1 is the first.
    interfaces: Arc<[(String, Medium)]>,
    controls: Arc<[Control<Shown<Host>>]>,
    stop: Stop,
    running: Arc<AtomicBool>,
}

impl Captures {
    pub(crate) fn new(
        interfaces: Vec<(String, Medium)>,
        controls: Vec<Control<Shown<Host>>>,
        stop: &Stop,
    ) -> Self {
        let running = Arc::default();
        Self {
            interfaces: interfaces.into(),
            controls: controls.into(),
            stop: stop.clone(),
            running,
        }
    }

    /// Samples what arrives for [`SAMPLE_TIME`], on a thread of its own, and answers with the
    /// source prefixes; with none while a capture runs.
    pub(crate) fn sources(&self, stream: &UnixStream) -> Option<String> {
        let sampler = self.sampler();
        let begun = stream.try_clone().map_err(|error| error.to_string()).and_then(|mut stream| {
            spawn_named("sources", move || {
                let sources = sampler();
                let answer = serde_json::json!({ "sources": sources });
                // A client that is gone, or does not read, loses its answer.
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_write_timeout(Some(CLIENT_PATIENCE));
                let _ = stream.write_all(format!("{answer}\n").as_bytes());
            })
            .map(drop)
        });
        begun.err().map(|why| serde_json::json!({ "error": why }).to_string())
    }

    /// A function that samples what arrives, and returns the source prefixes.
    pub(crate) fn sampler(&self) -> Sampler {
        let (controls, running) = (Arc::clone(&self.controls), Arc::clone(&self.running));
        Box::new(move || {
            // Another sample is over soon; a capture is not.
            if !(0..SAMPLE_TRIES).any(|_| {
                let is_free = !running.swap(true, Ordering::AcqRel);
                if !is_free {
                    pause(RECORD_POLL);
                }
                is_free
            }) {
                return Vec::new();
            }
            let installed =
                InstalledTaps { controls: Arc::clone(&controls), running: Arc::clone(&running) };
            let config = TapConfig {
                filter: TapFilter::default(),
                dropped_only: false,
                is_sample: true,
                snap_len: SAMPLE_BYTES,
                records_max: SAMPLE_RECORDS,
            };
            let mut readers = installed.install(&config);
            pause(SAMPLE_TIME);
            let mut sample = SourceSample::default();
            for reader in &mut readers {
                let mut take = |record: &TapRecord| sample.add(&record.bytes);
                while reader.read(&mut take).is_some() {}
            }
            sample.heaviest()
        })
    }

    /// Begins one on a clone of the connection; a refusal is one line.
    pub(crate) fn begin(&self, words: &str, stream: &UnixStream) -> Option<String> {
        let refusal = |why: &str| Some(serde_json::json!({ "error": why }).to_string());
        let Some(request) = CaptureRequest::read(words) else {
            return refusal("unknown request: it is of another version");
        };
        let filter = match read_filter(&request.filter) {
            Ok(filter) => filter,
            Err(why) => return refusal(&why),
        };
        if self.running.swap(true, Ordering::AcqRel) {
            return refusal("a capture is running already; wait for its end");
        }
        let config = TapConfig {
            filter,
            dropped_only: request.dropped,
            is_sample: false,
            snap_len: request.snap_len as usize,
            records_max: usize::MAX,
        };
        let (controls, running) = (Arc::clone(&self.controls), Arc::clone(&self.running));
        let session = CaptureSession {
            interfaces: Arc::clone(&self.interfaces),
            taps: InstalledTaps { controls, running },
            stop: self.stop.clone(),
            request,
        };
        let begun = stream.try_clone().map_err(|error| error.to_string()).and_then(|stream| {
            spawn_named("capture", move || session.run(stream, &config)).map(drop)
        });
        match begun {
            Ok(()) => None,
            Err(why) => refusal(&why),
        }
    }
}

/// One capture under way.
struct CaptureSession {
    interfaces: Arc<[(String, Medium)]>,
    taps: InstalledTaps,
    stop: Stop,
    request: CaptureRequest,
}

/// The taps of all workers; others may be installed once it is dropped.
struct InstalledTaps {
    controls: Arc<[Control<Shown<Host>>]>,
    running: Arc<AtomicBool>,
}

impl InstalledTaps {
    /// A tap at every worker; one that is down has none.
    fn install(&self, config: &TapConfig) -> Vec<TapReader> {
        let mut readers = Vec::new();
        for control in self.controls.iter() {
            let (tap, reader) = PacketTap::new(config.clone());
            let tap = Box::new(tap);
            let _ = control.ask(TAP_PATIENCE, move |desk| {
                drop(desk.engine.engine.stack_mut().set_tap(Some(tap)));
            });
            readers.push(reader);
        }
        readers
    }
}

impl Drop for InstalledTaps {
    fn drop(&mut self) {
        for control in self.controls.iter() {
            let remove = |desk: &mut ControlQueue<'_, Shown<Host>>| {
                drop(desk.engine.engine.stack_mut().set_tap(None));
            };
            // A worker that is down has none.
            let _ = control.post(WorkerCommand::new(remove));
        }
        self.running.store(false, Ordering::Release);
    }
}

impl CaptureSession {
    fn run(self, stream: UnixStream, config: &TapConfig) {
        // Closed last: a client that has seen the end may begin the next capture.
        let open = stream.try_clone();
        let written = self.write(stream, config);
        drop(self);
        match written {
            Ok(count) => tracing::info!(event = "capture", "capture ended: {count} packets"),
            Err(error) => tracing::info!(event = "capture", "capture ended: {error}"),
        }
        drop(open);
    }

    fn write(&self, stream: UnixStream, config: &TapConfig) -> io::Result<u64> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
        let client = stream.try_clone()?;
        let interfaces: Vec<_> = self.interfaces.to_vec();
        let out = BufWriter::new(stream);
        let mut out = AnnotatedWriter::new(out, &interfaces, self.request.snap_len)?;
        out.get_mut().flush()?;
        let mut readers = self.taps.install(config);
        let clock = Clock::new();
        let offset = clock.unix_time().saturating_sub(since_start(clock.now()));
        let until = clock.now() + Duration::from_secs(self.request.seconds);
        let mut written = 0;
        while written < self.request.count && clock.now() < until && !self.stop.is_triggered() {
            let before = written;
            for (worker, reader) in readers.iter_mut().enumerate() {
                let left = usize::try_from(self.request.count - written).unwrap_or(usize::MAX);
                for _ in 0..RECORDS_AT_ONCE.min(left) {
                    let record = |record: &TapRecord| self.record(&mut out, record, worker, offset);
                    let Some(outcome) = reader.read(record) else { break };
                    outcome?;
                    written += 1;
                }
            }
            if written == before {
                out.get_mut().flush()?;
                if is_gone(&client) {
                    break;
                }
            }
        }
        out.get_mut().flush()?;
        Ok(written)
    }

    fn record(
        &self,
        out: &mut AnnotatedWriter<BufWriter<UnixStream>>,
        record: &TapRecord,
        worker: usize,
        offset: Duration,
    ) -> io::Result<()> {
        // Interface 0 is the loopback, over which the stack sends to itself.
        let interface = usize::from(record.iface.0).saturating_sub(1);
        let unknown = (String::from("lo"), Medium::Ip);
        let (name, medium) = self.interfaces.get(interface).unwrap_or(&unknown);
        let what = match record.event {
            TapEvent::Arrived => "arrived".to_owned(),
            TapEvent::Sent => "sent".to_owned(),
            TapEvent::DroppedIn(reason) => {
                format!("dropped: {} ({})", reason.name(), reason.sentence())
            }
            TapEvent::DroppedOut(reason) => {
                format!("dropped on its way out: {} ({})", reason.name(), reason.sentence())
            }
        };
        let missed = match record.missed {
            0 => String::new(),
            n => format!("; {n} packets before it were not captured"),
        };
        let comment = format!("{what}; interface {name}; worker {worker}{missed}");
        out.packet(&AnnotatedPacket {
            interface: interface.min(self.interfaces.len().saturating_sub(1)),
            time: offset + since_start(record.at),
            bytes: &record.bytes,
            wire_len: record.wire_len,
            has_link_header: *medium == Medium::Ethernet && has_link_header(&record.bytes),
            inbound: matches!(record.event, TapEvent::Arrived | TapEvent::DroppedIn(_)),
            missed: record.missed,
            comment: &comment,
        })
    }
}

/// Whether the bytes of a packet of an Ethernet interface still begin with its link header: what is
/// dropped late may have lost it.
fn has_link_header(bytes: &[u8]) -> bool {
    let is_ip = matches!(bytes.first().map(|first| first >> 4), Some(4 | 6));
    let kind = bytes.get(12..14);
    let has_kind =
        matches!(kind, Some([0x08, 0x00 | 0x06] | [0x86, 0xdd] | [0x81, 0x00] | [0x88, 0xa8]));
    has_kind || !is_ip
}

#[expect(clippy::disallowed_methods, reason = "a thread that samples has nothing else to do")]
fn pause(length: Duration) {
    std::thread::sleep(length);
}

fn since_start(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

/// Whether the client has closed its end; waits [`RECORD_POLL`] where it has not.
fn is_gone(client: &UnixStream) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(RECORD_POLL.subsec_nanos()) };
    let mut waited = [PollFd::new(client, PollFlags::RDHUP)];
    let _ = poll(&mut waited, Some(&timeout));
    waited[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_itself_and_fits_a_line() {
        let words =
            "tcp and src net ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128 and dst port 65535";
        for filter in ["", words] {
            let request = CaptureRequest {
                dropped: true,
                count: u64::MAX,
                seconds: u64::MAX,
                snap_len: u32::MAX,
                filter: filter.to_owned(),
            };
            assert_eq!(CaptureRequest::read(&request.line()), Some(request.clone()));
            assert!(request.line().len() + 9 < crate::socket::REQUEST_MAX);
        }
        assert_eq!(CaptureRequest::read("1 many"), None);
    }
}
