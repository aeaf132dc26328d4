//! The sockets of all workers, as one document.
//!
//! Made by `run` for `floodwall socket`. The workers are asked for [`LOOK_PLACES`] places at a
//! time, so that packets wait for no more than that. Invariant: at most [`SOCKETS_MAX`] sockets are
//! named, and the document says where there are more.

use std::net::SocketAddr;
use std::time::Duration;

use floodwall_dispatch::{Control, ControlError, Shown};
use floodwall_stack::tcp_set::TcpState;
use floodwall_stack::{ConnectionReport, Host, UdpSocketReport};
use serde::{Deserialize, Serialize};

/// Places looked at between two bursts.
const LOOK_PLACES: usize = 512;
/// Sockets that one document names.
const SOCKETS_MAX: usize = 20_000;
/// How long a worker may take for one look.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SocketList {
    pub(crate) sockets: Vec<SocketEntry>,
    /// There are more than are named.
    pub(crate) more: bool,
}

/// One socket, under ss(8)'s names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SocketEntry {
    /// `tcp` or `udp`.
    pub(crate) netid: String,
    pub(crate) state: String,
    pub(crate) recv_q: u64,
    pub(crate) send_q: u64,
    pub(crate) local: SocketAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) worker: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) info: Option<SocketInfo>,
    /// Datagrams that a UDP socket refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) drops: Option<u64>,
}

/// Details of a connection, in the units of `ss -i`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SocketInfo {
    pub(crate) rto_ms: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) rttvar_ms: f64,
    pub(crate) mss: u32,
    pub(crate) rcvmss: u16,
    /// In segments.
    pub(crate) cwnd: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ssthresh: Option<u32>,
    pub(crate) unacked_bytes: u32,
    pub(crate) sacked_bytes: u32,
    pub(crate) lost_bytes: u32,
    pub(crate) backoff: u8,
    pub(crate) lastrcv_ms: u64,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
    pub(crate) wscale: bool,
    pub(crate) ecn: bool,
    pub(crate) rcv_limit: u32,
    pub(crate) snd_limit: u32,
}

/// ss(8)'s names of states.
pub(crate) const fn state_name(state: TcpState) -> &'static str {
    match state {
        TcpState::Established => "ESTAB",
        TcpState::SynReceived => "SYN-RECV",
        TcpState::Closed => "UNCONN",
        other => other.name(),
    }
}

fn millis(length: Duration) -> f64 {
    (length.as_secs_f64() * 1e6).round() / 1e3
}

fn of_connection(it: &ConnectionReport, worker: usize) -> SocketEntry {
    let info = &it.info;
    let segments = |bytes: u32| bytes / info.snd_mss.max(1);
    SocketEntry {
        netid: "tcp".to_owned(),
        state: state_name(info.state).to_owned(),
        recv_q: info.readable.into(),
        send_q: it.unacknowledged as u64,
        local: it.local,
        peer: Some(it.remote),
        worker,
        info: Some(SocketInfo {
            rto_ms: millis(info.rto),
            rtt_ms: millis(info.rtt),
            rttvar_ms: millis(info.rtt_variation),
            mss: info.snd_mss,
            rcvmss: info.our_mss,
            cwnd: segments(info.window),
            ssthresh: info.threshold.map(segments),
            unacked_bytes: info.outstanding,
            sacked_bytes: info.sacked,
            lost_bytes: info.lost,
            backoff: info.backoff,
            lastrcv_ms: u64::try_from(info.heard_ago.as_millis()).unwrap_or(u64::MAX),
            timestamps: info.timestamps,
            sack: info.sack,
            wscale: info.scaled,
            ecn: info.ecn,
            rcv_limit: info.receive_limit,
            snd_limit: info.send_limit,
        }),
        drops: None,
    }
}

fn of_udp(it: &UdpSocketReport, worker: usize) -> SocketEntry {
    let state = if it.remote.is_some() { "ESTAB" } else { "UNCONN" };
    SocketEntry {
        netid: "udp".to_owned(),
        state: state.to_owned(),
        recv_q: it.charged,
        send_q: it.sending,
        local: it.local,
        peer: it.remote,
        worker,
        info: None,
        drops: Some(it.refused.total()),
    }
}

/// Asks all workers.
///
/// # Errors
/// A worker did not answer.
pub(crate) fn ask<'a>(
    workers: impl Iterator<Item = &'a Control<Shown<Host>>>,
) -> Result<serde_json::Value, ControlError> {
    let mut list = SocketList::default();
    for (worker, control) in workers.enumerate() {
        let listeners = control.ask(LOOK_PATIENCE, |desk| {
            let all = desk.engine.engine.stack().tcp_listeners();
            all.map(|it| (it.local, it.counts.waiting, it.backlog)).collect::<Vec<_>>()
        })?;
        list.sockets.extend(listeners.into_iter().map(|(local, waiting, backlog)| SocketEntry {
            netid: "tcp".to_owned(),
            state: "LISTEN".to_owned(),
            recv_q: waiting,
            send_q: backlog as u64,
            local,
            peer: None,
            worker,
            info: None,
            drops: None,
        }));
        list.slices(control, move |stack, from, _| {
            let (all, next) = stack.udp_sockets(from, LOOK_PLACES);
            (all.iter().map(|it| of_udp(it, worker)).collect(), next)
        })?;
        list.slices(control, move |stack, from, now| {
            let (all, next) = stack.tcp_connections(from, LOOK_PLACES, now);
            (all.iter().map(|it| of_connection(it, worker)).collect(), next)
        })?;
    }
    Ok(serde_json::to_value(list).unwrap_or_default())
}

impl SocketList {
    /// Looks at all places of one kind, slice by slice.
    fn slices(
        &mut self,
        control: &Control<Shown<Host>>,
        look: impl Fn(
            &floodwall_stack::Stack,
            usize,
            floodwall_base::Instant,
        ) -> (Vec<SocketEntry>, Option<usize>)
        + Copy
        + Send
        + 'static,
    ) -> Result<(), ControlError> {
        let mut from = Some(0);
        while let Some(at) = from {
            if self.sockets.len() >= SOCKETS_MAX {
                self.more = true;
                return Ok(());
            }
            let asked = control
                .ask(LOOK_PATIENCE, move |desk| look(desk.engine.engine.stack(), at, desk.now))?;
            self.sockets.extend(asked.0);
            from = asked.1;
        }
        Ok(())
    }
}
