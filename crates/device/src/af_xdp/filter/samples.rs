//! For which services the last of the refused frames were: the words that the programs of an
//! interface write (`floodwall_bpf::sample`), read for reports.

use core::sync::atomic::Ordering::Relaxed;

use floodwall_bpf::sample::{ANSWERED, ENTRIES, RING, SampledService};

use super::desk::FilterRefusal;
use crate::af_xdp::mapped_words::MappedWords;
use crate::service_sample::ServiceSample;

const _: () = assert!(FilterRefusal::COUNT <= ANSWERED, "each reason has a ring of its own");

impl FilterRefusal {
    /// Those of frames that were read to their ports, of flows that are not established, with the
    /// names of their counts.
    pub(super) const SAMPLED: [(Self, &'static str); 5] = [
        (Self::Unknown, "rx_unverified"),
        (Self::PortClosed, "rx_port_closed"),
        (Self::Segment, "rx_segments"),
        (Self::Service, "rx_service_full"),
        (Self::Prefix, "rx_prefix_full"),
    ];
}

/// Adds what was sampled at a queue, by reason and service.
pub(super) fn add(words: &MappedWords, queue: u32, all: &mut Vec<ServiceSample>) {
    let refused = FilterRefusal::SAMPLED.map(|(why, count)| (why as usize, count));
    for (ring, count) in refused.into_iter().chain([(ANSWERED, "rx_syns_answered")]) {
        let first = queue as usize * ENTRIES + ring * RING;
        let words = words.all().iter().skip(first).take(RING);
        for service in words.filter_map(|word| SampledService::of(word.load(Relaxed))) {
            ServiceSample { count, service: (service.protocol, service.port), frames: 1 }
                .add_to(all);
        }
    }
}
