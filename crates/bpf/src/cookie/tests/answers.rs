//! SYNs that are answered: byte for byte what the stack's own cookie answer would be.

use core::net::IpAddr;

use floodwall_base::Instant;
use floodwall_syncache::ListenSettings;
use proptest::prelude::*;

use super::rig::*;
use crate::cookie::Desk;
use crate::sample::{self, SampledService};

const START: Instant = Instant::from_nanos(1_234_567_890_123_456);

fn settings(n: u32) -> ListenSettings {
    ListenSettings {
        window: 64_240,
        window_scale: 7,
        mss: (1460, 1440),
        sack: n & 1 == 0,
        timestamps: n & 2 == 0,
        ecn: n & 4 == 0,
        ..ListenSettings::new(100)
    }
}

/// Options in order: bits choose which, `mss` and `scale` what they say.
fn options(bits: u8, mss: u16, scale: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    if bits & 1 != 0 {
        bytes.extend([2, 4]);
        bytes.extend(mss.to_be_bytes());
    }
    if bits & 2 != 0 {
        bytes.extend([4, 2]);
    }
    if bits & 4 != 0 {
        bytes.extend([8, 10, 1, 2, 3, 4, 0, 0, 0, 0]);
    }
    if bits & 8 != 0 {
        bytes.extend([1, 3, 3, scale]);
    }
    bytes.resize(bytes.len().next_multiple_of(4), 1);
    bytes
}

fn compare(rig: &mut Rig, sent: &Sent) {
    let mut frame = sent.frame();
    let before = frame.len();
    let wanted = rig.cache_answers(sent);
    let got = rig.run_syn(&mut frame);
    match wanted {
        Some(wanted) => {
            assert_eq!(got.verdict, ANSWERED, "{sent:?}");
            assert_eq!(frame, wanted, "{sent:?}");
            assert!(frame.len() <= before, "no more leaves than came: {sent:?}");
        }
        None => assert_eq!(got.verdict, LEFT, "{sent:?}"),
    }
}

#[test]
fn every_combination_of_options_is_answered_as_the_stack_does() {
    for of in 0..8 {
        let mut rig = Rig::new(settings(of), START);
        for v6 in [false, true] {
            for bits in 0..16 {
                for (mss, scale) in [(1460, 7), (0, 0), (536, 14), (9000, 15), (1300, 255)] {
                    for flags in [0x02, 0xc2, 0x42, 0x82] {
                        let sent = Sent { flags, ..Sent::syn(v6, &options(bits, mss, scale)) };
                        compare(&mut rig, &sent);
                    }
                }
            }
        }
        assert_eq!(rig.desk(Desk::Answered), 2 * 16 * 5 * 4);
    }
}

#[test]
fn all_segment_sizes_and_scales_are_rounded_as_the_cookie_says() {
    let mut rig = Rig::new(settings(0), START);
    for v6 in [false, true] {
        for mss in (0..1500).chain((1500..=u16::MAX).step_by(97)) {
            compare(&mut rig, &Sent::syn(v6, &options(1, mss, 0)));
        }
        for scale in 0..=u8::MAX {
            compare(&mut rig, &Sent::syn(v6, &options(9, 1460, scale)));
        }
    }
}

#[test]
fn the_usual_syn_of_linux_costs_few_instructions() {
    let mut rig = Rig::new(settings(0), START);
    for (v6, most) in [(false, 1_200), (true, 1_500)] {
        let mut frame =
            Sent::syn(v6, &[2, 4, 5, 180, 4, 2, 8, 10, 9, 9, 9, 9, 0, 0, 0, 0, 1, 3, 3, 7]).frame();
        let outcome = rig.run_syn(&mut frame);
        assert_eq!(outcome.verdict, ANSWERED);
        assert!(outcome.steps <= most, "{} instructions", outcome.steps);
    }
}

/// Of SYNs that are answered one in sixteen says for which port.
#[test]
fn the_service_of_answered_syns_is_sampled() {
    let mut rig = Rig::new(settings(0), START);
    let samples = rig.maps.samples.unwrap();
    let first = sample::ANSWERED * sample::RING;
    let taken = |rig: &mut Rig| -> Vec<_> {
        let keys = (0..sample::RING).map(|n| ((first + n) as u32).to_ne_bytes());
        let words = keys.filter_map(|key| rig.machine.word(samples, &key, 0));
        words.filter_map(SampledService::of).collect()
    };
    for v6 in [false, true] {
        for _ in 0..sample::EACH * 2 {
            let mut frame = Sent::syn(v6, &[]).frame();
            assert_eq!(rig.run_syn(&mut frame).verdict, ANSWERED);
        }
        let http = SampledService { protocol: 6, port: PORT };
        assert_eq!(taken(&mut rig), vec![http; if v6 { 4 } else { 2 }]);
    }
}

#[test]
fn data_and_padding_behind_a_syn_are_cut_off() {
    let mut rig = Rig::new(settings(0), START);
    for v6 in [false, true] {
        let sent = Sent { text: 700, ..Sent::syn(v6, &options(15, 1460, 7)) };
        compare(&mut rig, &sent);
        let bare = Sent::syn(v6, &[]);
        let mut padded = bare.padded();
        padded.extend([7; 9]);
        assert_eq!(rig.run_syn(&mut padded).verdict, ANSWERED);
        assert_eq!(padded, rig.cache_answers(&bare).unwrap());
    }
}

#[test]
fn the_link_counts_for_link_local_addresses_and_for_no_others() {
    let mut rig = Rig::new(settings(0), START);
    let local = |n: u16| IpAddr::V6(core::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n));
    for (from, to) in [
        (local(9), LINK_LOCAL.into()),
        (local(9), OURS.1.into()),
        ("2001:db8::1".parse().unwrap(), LINK_LOCAL.into()),
        ("febf::1".parse().unwrap(), OURS.1.into()),
        ("fec0::1".parse().unwrap(), OURS.1.into()),
        ("169.254.7.7".parse().unwrap(), OURS.0.into()),
        ("169.253.7.7".parse().unwrap(), OURS.0.into()),
    ] {
        let sent = Sent { from, to, ..Sent::syn(from.is_ipv6(), &options(15, 1460, 7)) };
        compare(&mut rig, &sent);
    }
    assert_eq!(rig.desk(Desk::Left), 0);
}

fn any_options() -> impl Strategy<Value = Vec<u8>> {
    let one = prop_oneof![
        Just(vec![1_u8]),
        any::<u16>().prop_map(|mss| [vec![2, 4], mss.to_be_bytes().to_vec()].concat()),
        any::<u8>().prop_map(|scale| vec![3, 3, scale]),
        Just(vec![4, 2]),
        any::<[u8; 8]>().prop_map(|bytes| [vec![8, 10], bytes.to_vec()].concat()),
        any::<[u8; 8]>().prop_map(|bytes| [vec![5, 10], bytes.to_vec()].concat()),
        (5_u8.., 2_u8..8).prop_map(|(kind, len)| {
            let mut bytes = vec![kind, len];
            bytes.resize(usize::from(len), 9);
            bytes
        }),
    ];
    let sane = proptest::collection::vec(one, 0..7).prop_map(|all| {
        let mut bytes = Vec::new();
        for option in all {
            if bytes.len() + option.len() <= 40 {
                bytes.extend(option);
            }
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    });
    let wild = proptest::collection::vec(0_u8..12, 0..11)
        .prop_map(|words| words.iter().flat_map(|w| [*w, w ^ 2, w / 2, 1]).collect());
    prop_oneof![8 => sane, 1 => wild]
}

prop_compose! {
    fn any_syn()(
        v6: bool, options in any_options(), seq: u32, from: u128, port in 1_u16..,
        flags in prop_oneof![Just(0x02_u8), Just(0xc2), Just(0x42), Just(0x0a), Just(0x22)],
        text in prop_oneof![4 => Just(0_usize), 1 => 0..200_usize],
    ) -> Sent {
        let v4 = core::net::Ipv4Addr::from_bits(from as u32 % 0x5f00_0000 + 0x0100_0000);
        let from = match v6 {
            true => core::net::Ipv6Addr::from_bits(from >> 4 | 0x2 << 124).into(),
            false => v4.into(),
        };
        Sent { from, seq, flags, text, ports: (port, PORT), ..Sent::syn(v6, &options) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(deep(10_000)))]
    #[test]
    fn random_syns_are_answered_as_the_stack_does(
        sent in any_syn(), seconds in 0_u64..1000, nanos in 0_u64..1_000_000_000,
        of in 0_u32..8,
    ) {
        thread_local! {
            static RIGS: core::cell::RefCell<Vec<Rig>> = core::cell::RefCell::new(
                (0..8).map(|of| Rig::new(settings(of), START)).collect(),
            );
        }
        RIGS.with_borrow_mut(|rigs| {
            let rig = &mut rigs[of as usize];
            let nanos = START.as_nanos() + seconds * 1_000_000_000 + nanos;
            rig.at(Instant::from_nanos(nanos));
            compare(rig, &sent);
        });
    }
}

/// Ten times as many where time is no matter.
fn deep(cases: u32) -> u32 {
    if std::env::var_os("FLOODWALL_DEEP").is_some() { 10 * cases } else { cases }
}
