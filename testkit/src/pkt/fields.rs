//! What a script's code blocks may ask about the connection under test, by the names that Linux's
//! `TCP_INFO` gave them; and the names of the values that they compare with.

use std::collections::BTreeMap;

use floodwall_tcp::{Info, RecoveryPhase, TcpState};

/// Timestamps, SACK, window scale, ECN: bits of `tcpi_options`.
const OPTIONS: &[(&str, i64)] = &[
    ("TCPI_OPT_TIMESTAMPS", 1),
    ("TCPI_OPT_SACK", 2),
    ("TCPI_OPT_WSCALE", 4),
    ("TCPI_OPT_ECN", 8),
    ("TCPI_OPT_ECN_SEEN", 16),
    ("TCPI_OPT_SYN_DATA", 32),
];
/// The states, as Linux numbers them, and as FreeBSD's names have it.
const STATES: &[(&str, i64)] = &[
    ("ESTABLISHED", 1),
    ("SYN_SENT", 2),
    ("SYN_RECV", 3),
    ("SYN_RECEIVED", 3),
    ("FIN_WAIT1", 4),
    ("FIN_WAIT_1", 4),
    ("FIN_WAIT2", 5),
    ("FIN_WAIT_2", 5),
    ("TIME_WAIT", 6),
    ("CLOSE", 7),
    ("CLOSED", 7),
    ("CLOSE_WAIT", 8),
    ("LAST_ACK", 9),
    ("LISTEN", 10),
    ("CLOSING", 11),
];
/// `tcpi_ca_state`.
const PHASES: &[(&str, i64)] = &[
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
];

/// Names that stand for numbers in code blocks.
pub(super) fn constants() -> BTreeMap<String, i64> {
    let mut names: BTreeMap<String, i64> =
        OPTIONS.iter().chain(PHASES).map(|(name, n)| ((*name).to_owned(), *n)).collect();
    for (name, number) in STATES {
        for prefix in ["TCP_", "TCPI_", "TCPS_"] {
            names.insert(format!("{prefix}{name}"), *number);
        }
    }
    names.insert("True".to_owned(), 1);
    names.insert("False".to_owned(), 0);
    names
}

/// A state as `tcpi_state` numbers it.
pub(super) const fn number_of(state: TcpState) -> i64 {
    match state {
        TcpState::Established => 1,
        TcpState::SynSent => 2,
        TcpState::SynReceived => 3,
        TcpState::FinWait1 => 4,
        TcpState::FinWait2 => 5,
        TcpState::TimeWait => 6,
        TcpState::Closed => 7,
        TcpState::CloseWait => 8,
        TcpState::LastAck => 9,
        TcpState::Listen => 10,
        TcpState::Closing => 11,
    }
}

/// The fields of a connection.
pub(super) fn of(info: &Info) -> BTreeMap<String, i64> {
    let phase = match info.phase {
        // What was reported out of order may be a loss (Linux's name: disorder).
        RecoveryPhase::Open if info.sacked > 0 => 1,
        RecoveryPhase::Open => 0,
        RecoveryPhase::Fast => 3,
        RecoveryPhase::Timeout => 4,
    };
    let bits = [info.timestamps, info.sack, info.scaled, info.ecn];
    let options = bits.iter().enumerate().map(|(bit, is_on)| i64::from(*is_on) << bit).sum();
    let micros = |time: std::time::Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let mss = i64::from(info.snd_mss.max(1));
    // Linux counts segments where Floodwall counts bytes.
    let segments = |bytes: u32| (i64::from(bytes) + mss - 1) / mss;
    let fields = [
        ("tcpi_state", number_of(info.state)),
        ("tcpi_ca_state", phase),
        ("tcpi_options", options),
        ("tcpi_snd_cwnd", i64::from(info.window) / mss),
        ("tcpi_snd_ssthresh", info.threshold.map_or(0x7fff_ffff, |bytes| i64::from(bytes) / mss)),
        ("tcpi_unacked", segments(info.outstanding)),
        ("tcpi_sacked", segments(info.sacked)),
        // Linux counts what is lost until it is delivered, also once it was sent again.
        ("tcpi_lost", segments(info.lost_so_far)),
        ("tcpi_retrans", segments(info.repeated)),
        ("tcpi_reordering", info.reordering.into()),
        ("tcpi_reord_seen", info.reordered.into()),
        ("tcpi_rcv_mss", i64::from(info.rcv_mss)),
        ("SK_MEMINFO_RMEM_ALLOC", i64::from(info.readable)),
        ("SK_MEMINFO_RCVBUF", i64::from(info.receive_limit)),
        ("SK_MEMINFO_WMEM_ALLOC", i64::from(info.outstanding)),
        ("SK_MEMINFO_SNDBUF", i64::from(info.send_limit)),
        ("SK_MEMINFO_FWD_ALLOC", 0),
        ("SK_MEMINFO_WMEM_QUEUED", i64::from(info.outstanding) + i64::from(info.unsent)),
        ("SK_MEMINFO_OPTMEM", 0),
        ("SK_MEMINFO_BACKLOG", 0),
        ("SK_MEMINFO_DROPS", 0),
        ("tcpi_snd_mss", mss),
        ("tcpi_advmss", i64::from(info.our_mss)),
        ("tcpi_backoff", i64::from(info.backoff)),
        ("tcpi_probes", i64::from(info.probes)),
        ("tcpi_rtt", micros(info.rtt)),
        ("tcpi_rttvar", micros(info.rtt_variation)),
        ("tcpi_rto", micros(info.rto)),
        ("tcpi_last_data_recv", micros(info.heard_ago) / 1000),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
