//! The walk over extension headers: what it accepts, what it refuses and which error follows.

use floodwall_wire::icmpv6::ParameterProblemCode as Code;
use floodwall_wire::ipv6_ext::{FragmentFields, emit_authentication, emit_options, emit_routing};
use floodwall_wire::ipv6_walk::{ExtensionReason as Reason, FragmentPlace};
use floodwall_wire::*;
use proptest::prelude::*;

/// A packet being put together: an IPv6 header with lengths and links that are set at the end.
struct Build {
    bytes: Vec<u8>,
    link: usize,
}

impl Build {
    fn new() -> Self {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut header = [0; 40];
        Ipv6Fields::new(a, b, IpProtocol::NO_NEXT_HEADER, 64, 0).emit(&mut header);
        Self { bytes: header.to_vec(), link: 6 }
    }

    fn push(mut self, kind: IpProtocol, header: &[u8]) -> Self {
        self.bytes[self.link] = kind.0;
        self.link = self.bytes.len();
        self.bytes.extend_from_slice(header);
        self
    }

    fn options(self, kind: IpProtocol, options: &[u8]) -> Self {
        let mut out = [0; 2048];
        let len = emit_options(IpProtocol::NO_NEXT_HEADER, options, &mut out).unwrap();
        self.push(kind, &out[..len])
    }

    fn hop_by_hop(self, options: &[u8]) -> Self {
        self.options(IpProtocol::HOP_BY_HOP, options)
    }

    fn destination(self, options: &[u8]) -> Self {
        self.options(IpProtocol::DESTINATION_OPTIONS, options)
    }

    fn routing(self, routing_type: u8, left: u8) -> Self {
        let mut out = [0; 24];
        let next = IpProtocol::NO_NEXT_HEADER;
        emit_routing(next, routing_type, left, &[0; 20], &mut out).unwrap();
        self.push(IpProtocol::ROUTING, &out)
    }

    fn fragment(self, offset: u16, more: bool) -> Self {
        let next_header = IpProtocol::NO_NEXT_HEADER;
        let mut out = [0; 8];
        FragmentFields { next_header, offset, more, id: 7 }.emit(&mut out);
        self.push(IpProtocol::FRAGMENT, &out)
    }

    fn authentication(self) -> Self {
        let mut out = [0; 64];
        let len =
            emit_authentication(IpProtocol::NO_NEXT_HEADER, 1, 2, &[3; 12], &mut out).unwrap();
        self.push(IpProtocol::AUTHENTICATION, &out[..len])
    }

    fn udp(mut self) -> Vec<u8> {
        self.bytes[self.link] = IpProtocol::UDP.0;
        self.bytes.extend_from_slice(&[0, 1, 0, 2, 0, 8, 0, 0]);
        self.finish()
    }

    fn finish(mut self) -> Vec<u8> {
        let len = (self.bytes.len() - 40) as u16;
        self.bytes[4..6].copy_from_slice(&len.to_be_bytes());
        self.bytes
    }
}

/// One option to be skipped, of 22 bytes.
const LONG_OPTION: [u8; 22] =
    [0x1e, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

type Outcome = Result<(WalkEnd, Option<FragmentPlace>, Vec<(u8, usize)>), ExtensionError>;

fn contiguous(packet: &[u8]) -> Outcome {
    let header = Ipv6Header::parse(packet, packet.len()).unwrap();
    let walk = ExtensionWalk::of_packet(&header, packet.len(), ExtensionLimits::default());
    let mut seen = Vec::new();
    let (end, fragment) = walk.run(packet, |header, at| seen.push((header.kind().0, at)))?;
    Ok((end, fragment, seen))
}

fn piecewise(packet: &[u8]) -> Outcome {
    let header = Ipv6Header::parse(packet, packet.len()).unwrap();
    let mut walk = ExtensionWalk::of_packet(&header, packet.len(), ExtensionLimits::default());
    let (mut seen, mut steps) = (Vec::new(), 0);
    while let Some(want) = walk.wants() {
        let piece = packet[want.offset..want.offset + want.len].to_vec();
        if let Step::Header { header, offset, .. } = walk.feed(&piece)? {
            seen.push((header.kind().0, offset));
        }
        steps += 1;
        assert!(steps <= 17, "at most two steps for each of eight headers and one to refuse");
    }
    Ok((walk.end().unwrap(), walk.fragment(), seen))
}

fn both(packet: &[u8]) -> Outcome {
    let whole = contiguous(packet);
    assert_eq!(whole, piecewise(packet));
    whole
}

fn refused(packet: &[u8]) -> (Reason, Owed) {
    let error = both(packet).unwrap_err();
    (error.reason, error.owed)
}

fn problem(code: Code, pointer: usize) -> Owed {
    Owed::ParameterProblem { code, pointer, to_multicast: false }
}

#[test]
fn a_chain_of_every_header_is_walked_to_its_upper_layer() {
    let packet = Build::new()
        .hop_by_hop(&[5, 2, 0, 0])
        .destination(&[])
        .routing(0, 0)
        .fragment(0, false)
        .destination(&[0x1e, 1, 9])
        .udp();
    let (end, fragment, seen) = both(&packet).unwrap();
    assert_eq!(seen, [(0, 40), (60, 48), (43, 56), (44, 80), (60, 88)]);
    let upper = WalkEnd::UpperLayer { protocol: IpProtocol::UDP, offset: 96, announced_at: 88 };
    assert_eq!(end, upper);
    let place = fragment.unwrap();
    assert!(place.fields.is_atomic());
    assert_eq!((place.offset, place.announced_at), (80, 56));
}

#[test]
fn no_extension_header_is_the_end_at_once() {
    let (end, ..) = both(&Build::new().udp()).unwrap();
    assert_eq!(end, WalkEnd::UpperLayer { protocol: IpProtocol::UDP, offset: 40, announced_at: 6 });
    let (end, ..) = both(&Build::new().finish()).unwrap();
    assert_eq!(end, WalkEnd::NoNextHeader { offset: 40 });
    for opaque in [IpProtocol::ESP, IpProtocol(135), IpProtocol(139), IpProtocol(140)] {
        let (end, ..) = both(&Build::new().push(opaque, &[0; 16]).finish()).unwrap();
        assert!(matches!(end, WalkEnd::UpperLayer { protocol, .. } if protocol == opaque));
    }
}

#[test]
fn a_walk_that_is_over_says_so_when_fed() {
    let limits = ExtensionLimits::default();
    let mut walk = ExtensionWalk::new(IpProtocol::TCP, 40, 100, limits);
    assert!(matches!(walk.feed(&[]), Ok(Step::End(WalkEnd::UpperLayer { offset: 40, .. }))));
}

#[test]
fn fragments_end_the_walk_unless_first() {
    let packet = Build::new().fragment(8, true).udp();
    let (end, fragment, _) = both(&packet).unwrap();
    assert_eq!(end, WalkEnd::LaterFragment { offset: 48 });
    assert_eq!(fragment.unwrap().fields.next_header, IpProtocol::UDP);
    let (end, fragment, _) = both(&Build::new().fragment(0, true).udp()).unwrap();
    assert!(matches!(end, WalkEnd::UpperLayer { offset: 48, .. }));
    assert!(fragment.unwrap().fields.more);
}

#[test]
fn nested_fragment_headers_are_refused_silently() {
    for count in 2..260 {
        let build = (0..count).fold(Build::new(), |build, _| build.fragment(0, false));
        assert_eq!(refused(&build.udp()), (Reason::RepeatedFragment, Owed::Nothing));
    }
}

#[test]
fn a_first_fragment_without_its_whole_chain_is_answered() {
    let mut packet = Build::new().fragment(0, true).destination(&LONG_OPTION).finish();
    packet.truncate(60);
    packet[5] = 20;
    assert_eq!(refused(&packet), (Reason::Truncated, problem(Code::INCOMPLETE_CHAIN, 0)));
}

#[test]
fn headers_cut_anywhere_are_refused_silently() {
    let whole = Build::new().hop_by_hop(&LONG_OPTION).routing(0, 0).destination(&[]).udp();
    let upper = whole.len() - 8;
    for cut in 40..upper {
        let mut packet = whole[..cut].to_vec();
        packet[5] = (cut - 40) as u8;
        if cut == 40 {
            // An empty payload announced as a hop-by-hop header is a jumbogram without bytes.
            assert_eq!(refused(&packet).0, Reason::Truncated);
            continue;
        }
        assert_eq!(refused(&packet), (Reason::Truncated, Owed::Nothing), "{cut}");
    }
}

#[test]
fn a_hop_by_hop_header_elsewhere_than_first_is_an_unknown_next_header() {
    let packet = Build::new().destination(&[]).hop_by_hop(&[]).udp();
    let owed = problem(Code::UNRECOGNIZED_NEXT_HEADER, 40);
    assert_eq!(refused(&packet), (Reason::HopByHopNotFirst, owed));
}

#[test]
fn routing_headers_with_segments_left_are_answered_at_their_type() {
    for routing_type in [0, 1, 2, 3, 4, 5, 253] {
        let owed = problem(Code::ERRONEOUS_FIELD, 42);
        let packet = Build::new().routing(routing_type, 1).udp();
        assert_eq!(refused(&packet), (Reason::RoutingSegmentsLeft, owed));
        assert!(both(&Build::new().routing(routing_type, 0).udp()).is_ok());
    }
    let packet = Build::new().hop_by_hop(&[]).routing(0, 255).udp();
    assert_eq!(refused(&packet).1, problem(Code::ERRONEOUS_FIELD, 50));
}

#[test]
fn unknown_options_are_done_by_their_action_bits() {
    let code = Code::UNRECOGNIZED_OPTION;
    let owed = |to_multicast| Owed::ParameterProblem { code, pointer: 42, to_multicast };
    for (kind, want) in [
        (0x1e, None),
        (0x5e, Some(Owed::Nothing)),
        (0x9e, Some(owed(true))),
        (0xde, Some(owed(false))),
    ] {
        for packet in [
            Build::new().hop_by_hop(&[kind, 4, 0, 0, 0, 0]).udp(),
            Build::new().destination(&[kind, 4, 0, 0, 0, 0]).udp(),
        ] {
            match want {
                None => assert!(both(&packet).is_ok()),
                Some(owed) => assert_eq!(refused(&packet), (Reason::UnknownOption, owed)),
            }
        }
    }
}

#[test]
fn jumbograms_are_refused_by_the_rules_of_their_rfc() {
    let jumbo = |len: u32| {
        let [a, b, c, d] = len.to_be_bytes();
        Build::new().hop_by_hop(&[0xc2, 4, a, b, c, d])
    };
    let erroneous = |pointer| problem(Code::ERRONEOUS_FIELD, pointer);
    // With a payload length as well: the option is wrong.
    let packet = jumbo(70_000).udp();
    assert_eq!(refused(&packet), (Reason::JumboPayload, erroneous(42)));
    let packet = jumbo(70_000).fragment(0, false).udp();
    assert_eq!(refused(&packet), (Reason::JumboPayload, erroneous(42)));
    let zero = |build: Build| {
        let mut packet = build.udp();
        packet[4..6].fill(0);
        packet
    };
    assert_eq!(refused(&zero(jumbo(65_535))), (Reason::JumboPayload, erroneous(44)));
    assert_eq!(refused(&zero(jumbo(70_000))), (Reason::JumboUnsupported, Owed::Nothing));
    let packet = zero(Build::new().hop_by_hop(&[]));
    assert_eq!(refused(&packet), (Reason::JumboPayload, erroneous(4)));
    // In a destination options header it is an unknown option that must not be skipped.
    let packet = Build::new().destination(&[0xc2, 4, 0, 1, 0, 0]).udp();
    assert_eq!(refused(&packet), (Reason::UnknownOption, problem(Code::UNRECOGNIZED_OPTION, 42)));
}

#[test]
fn limits_hold_and_carry_their_codes() {
    let eight = (0..8).fold(Build::new(), |build, _| build.destination(&[]));
    assert!(both(&eight.udp()).is_ok());
    for count in [9, 12, 100, 8172] {
        let build = (0..count).fold(Build::new(), |build, _| build.destination(&[]));
        let owed = problem(Code::TOO_MANY_HEADERS, 40 + 64);
        assert_eq!(refused(&build.udp()), (Reason::TooManyHeaders, owed));
    }
    let options = |count: usize| Build::new().destination(&[0x1e, 0].repeat(count)).udp();
    assert!(both(&options(8)).is_ok());
    let owed = problem(Code::TOO_MANY_OPTIONS, 42 + 16);
    assert_eq!(refused(&options(9)), (Reason::TooManyOptions, owed));
    assert_eq!(refused(&options(700)), (Reason::TooManyOptions, owed));

    assert!(both(&Build::new().destination(&[0; 6]).udp()).is_ok());
    let owed = |pointer| problem(Code::OPTION_TOO_BIG, pointer);
    let packet = Build::new().destination(&[0; 14]).udp();
    assert_eq!(refused(&packet), (Reason::PaddingTooLong, owed(49)));
    let packet = Build::new().destination(&[1, 3, 0, 0, 0, 1, 1, 0]).udp();
    assert_eq!(refused(&packet), (Reason::PaddingTooLong, owed(47)));
    let packet = Build::new().destination(&[0x1e, 0, 0, 0, 0, 0x1e, 0, 1, 3, 0, 0, 0]).udp();
    assert!(both(&packet).is_ok(), "padding between options counts on its own");

    // 1,500 bytes: five headers of 296 bytes are 1,480, a sixth is too many.
    let big = |count| {
        let options = [[0x1e, 255].as_slice(), &[9; 255], &[0x1e, 35], &[9; 35]].concat();
        (0..count).fold(Build::new(), |build, _| build.destination(&options)).udp()
    };
    assert!(both(&big(5)).is_ok());
    let owed = problem(Code::CHAIN_TOO_LONG, 40 + 5 * 296);
    assert_eq!(refused(&big(6)), (Reason::ChainTooLong, owed));
}

#[test]
fn options_with_lying_lengths_are_answered_at_the_length() {
    for options in [&[0x1e, 5, 0, 0, 0, 0][..], &[5, 1, 0, 1, 1, 0], &[0xc2, 3, 0, 0, 0, 0]] {
        let packet = Build::new().hop_by_hop(options).udp();
        let owed = problem(Code::ERRONEOUS_FIELD, 43);
        assert_eq!(refused(&packet), (Reason::OptionLength, owed), "{options:?}");
    }
}

#[test]
fn a_walk_ends_at_an_authentication_header_of_any_length() {
    let short = Build::new().push(IpProtocol::AUTHENTICATION, &[17, 0, 0, 0, 0, 0, 0, 1]).udp();
    let whole = Build::new().destination(&[]).authentication().destination(&[]).udp();
    for (packet, offset, announced_at) in [(short, 40, 6), (whole, 48, 40)] {
        let protocol = IpProtocol::AUTHENTICATION;
        let (end, ..) = both(&packet).unwrap();
        assert_eq!(end, WalkEnd::UpperLayer { protocol, offset, announced_at });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes_end_within_the_limits_and_the_same_in_pieces(
        first in prop::sample::select(vec![0u8, 43, 44, 51, 60, 17, 59]),
        mut tail in prop::collection::vec(any::<u8>(), 0..400),
        links in prop::collection::vec(
            (0usize..50, prop::sample::select(vec![0u8, 43, 44, 51, 60, 6])), 0..40),
        zero_length: bool,
    ) {
        // Sprinkle next-header values and small lengths where headers may begin.
        for (unit, kind) in links {
            if let Some([next, len, ..]) = tail.get_mut(unit * 8..) {
                (*next, *len) = (kind, *len % 4);
            }
        }
        let mut packet = Build::new().push(IpProtocol(first), &tail).finish();
        if zero_length {
            packet[4..6].fill(0);
        }
        if let Ok((end, _, seen)) = both(&packet) {
            prop_assert!(seen.len() <= 8);
            let offset = match end {
                WalkEnd::UpperLayer { offset, .. }
                | WalkEnd::LaterFragment { offset }
                | WalkEnd::NoNextHeader { offset } => offset,
            };
            prop_assert!(offset <= packet.len() && offset <= 40 + 1500);
        }
    }
}

/// Walked on a thread with hardly any stack, with limits that allow everything.
fn walked_on_a_small_stack(headers: usize) -> usize {
    let padding = [1, 4, 0, 0, 0, 0];
    let chain = (0..headers).fold(Build::new(), |build, _| build.destination(&padding));
    let mut packet = chain.bytes;
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    let walked = move || {
        let header = Ipv6Header::parse(&packet, packet.len()).unwrap();
        let all = ExtensionLimits {
            headers_max: usize::MAX,
            options_max: usize::MAX,
            padding_max: usize::MAX,
            chain_bytes_max: usize::MAX,
        };
        let mut seen = 0;
        let walk = ExtensionWalk::of_packet(&header, packet.len(), all);
        let (end, _) = walk.run(&packet, |_, _| seen += 1).unwrap();
        assert_eq!(end, WalkEnd::NoNextHeader { offset: 40 + 8 * headers });
        seen
    };
    let thread = std::thread::Builder::new().stack_size(16 << 10).spawn(walked).unwrap();
    thread.join().unwrap()
}

/// Nothing recurses (CVE-2016-7039): eight thousand headers need no more stack than a hundred.
#[test]
fn a_chain_of_a_hundred_or_eight_thousand_headers_needs_no_more_stack_than_one() {
    for headers in [1, 100, 8_000, 8_191] {
        assert_eq!(walked_on_a_small_stack(headers), headers);
    }
}
