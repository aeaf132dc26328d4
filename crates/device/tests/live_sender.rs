//! Frames that a program in the kernel makes: what arrives at the other end of a veth.

#![expect(clippy::disallowed_methods, reason = "the kernel keeps the pace in real time")]

use std::collections::BTreeSet;
use std::net::IpAddr;

use floodwall_base::MacAddr;
use floodwall_device::{
    AfXdp, AfXdpConfig, Device, FirstLineMode, LiveConfig, LiveSender, LiveWord, OpenedXdp,
};
use floodwall_packet::{Burst, Pool, PoolConfig};

use crate::namespace::{flat, inside, ip, skip, wait_millis};
use crate::packets;

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const THEIRS: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];
const COUNT: u64 = 400;
const LENGTH: std::time::Duration = std::time::Duration::from_millis(100);

fn word(at: u16, (min, max): (u16, u16), covered: [bool; 2]) -> LiveWord {
    LiveWord { at, min, max, in_header: covered[0], in_upper: covered[1] }
}

/// SYNs or datagrams with sources of a network, and ports from 1,024 to 65,000.
fn config(v6: bool, tcp: bool, rate: u64, count: u64) -> LiveConfig {
    let [from, to]: [IpAddr; 2] = match v6 {
        false => ["11.0.0.0", "10.98.2.2"].map(|text| text.parse().unwrap()),
        true => ["2001:db8::", "fd98:2::2"].map(|text| text.parse().unwrap()),
    };
    let packet = match tcp {
        true => packets::segment(from, to, 7, 2, 0),
        false => {
            let mut datagram = vec![4, 0, 0, 80, 0, 12, 0, 0, b'w', b'h', b'a', b't'];
            let partial = packets::pseudo(from, to, packets::UDP, datagram.len());
            datagram[6..8].copy_from_slice(&partial.to_be_bytes());
            let mut sum = floodwall_checksum::Accumulator::new();
            let sum = sum.add(&datagram).finish();
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
            packets::ip_packet(from, to, packets::UDP, &datagram)
        }
    };
    let l4 = if v6 { 54 } else { 34 };
    let mut words = match v6 {
        false => {
            vec![word(26, (0x0b00, 0x5fff), [true, true]), word(28, (0, 0xffff), [true, true])]
        }
        true => vec![
            word(26, (0, 0xffff), [false, true]),
            word(34, (0, 0xffff), [false, true]),
            word(36, (0, 0xffff), [false, true]),
        ],
    };
    words.push(word(l4, (1024, 65_000), [false, true]));
    LiveConfig {
        frame: packets::frame(OURS, THEIRS, &packet),
        words,
        header_sum: (!v6).then_some(24),
        upper_sum: (l4 + if tcp { 16 } else { 6 }, !tcp),
        rate,
        count,
    }
}

/// Our end of a veth, ready; the other one is `theirs`.
fn receiver(pool: &Pool) -> Option<AfXdp> {
    if !(ip("link add ours type veth peer name theirs")
        && ip("link set ours up")
        && ip("link set theirs up"))
    {
        skip("no veth pair in this kernel");
        return None;
    }
    let first_line = FirstLineMode::Off;
    let config = AfXdpConfig { first_line, ..AfXdpConfig::new(MacAddr(OURS)) };
    let opened = AfXdp::open("ours", &config);
    let Ok(OpenedXdp { queues, .. }) = opened else {
        skip("no AF_XDP here");
        return None;
    };
    let mut device = queues.into_iter().next()?;
    for _ in 0..2000 {
        device.receive(pool, &mut Burst::new()).unwrap();
        if !device.pending() {
            break;
        }
        wait_millis(device.readiness().unwrap(), 5);
    }
    Some(device)
}

/// The frames from the sender that have arrived.
fn arrived(device: &mut AfXdp, pool: &Pool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..50 {
        let mut burst = Burst::new();
        device.receive(pool, &mut burst).unwrap();
        let frames = burst.drain().map(|packet| flat(&packet));
        all.extend(frames.filter(|frame| frame[6..12] == THEIRS));
        if all.len() as u64 >= COUNT {
            break;
        }
        if !device.pending() {
            wait_millis(device.readiness().unwrap(), 20);
        }
    }
    all
}

#[test]
fn frames_have_right_checksums_random_words_in_their_ranges_and_no_more_are_sent_than_asked_for() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let Some(mut device) = receiver(&pool) else { return };
        for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
            let config = config(v6, tcp, 0, COUNT);
            let mut sender = LiveSender::open("theirs", &config).unwrap();
            match sender.send(LENGTH) {
                Ok(goes_on) => assert!(!goes_on),
                Err(error) => return skip(&format!("no live frames: {error}")),
            }
            assert_eq!(sender.sent(), COUNT);
            let frames = arrived(&mut device, &pool);
            assert_eq!(frames.len() as u64, COUNT, "IPv6 {v6}, TCP {tcp}");
            let mut sources = BTreeSet::new();
            for frame in &frames {
                assert!(packets::verifies(&frame[14..]), "{frame:02x?}");
                if !v6 {
                    let header =
                        floodwall_checksum::Accumulator::new().add(&frame[14..34]).verifies();
                    assert!(header, "{frame:02x?}");
                    assert!((0x0b..=0x5f).contains(&frame[26]), "{frame:02x?}");
                }
                let l4 = if v6 { 54 } else { 34 };
                let port = u16::from_be_bytes([frame[l4], frame[l4 + 1]]);
                assert!((1024..=65_000).contains(&port), "{port}");
                // All else is the frame's own.
                let is_fixed = |at: &usize| {
                    !config.words.iter().any(|w| (w.at as usize..w.at as usize + 2).contains(at))
                        && config.header_sum.is_none_or(|sum| *at / 2 != sum as usize / 2)
                        && *at / 2 != config.upper_sum.0 as usize / 2
                };
                let fixed = (0..config.frame.len()).filter(is_fixed);
                assert!(fixed.into_iter().all(|at| frame[at] == config.frame[at]));
                sources.insert(frame[26..l4 + 2].to_vec());
            }
            assert!(sources.len() as u64 > COUNT - 5, "{} different", sources.len());
        }
    });
}

#[test]
fn a_rate_is_kept_by_the_program() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let Some(_device) = receiver(&pool) else { return };
        let mut sender = LiveSender::open("theirs", &config(false, true, 10_000, 0)).unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..6 {
            match sender.send(LENGTH) {
                Ok(goes_on) => assert!(goes_on),
                Err(error) => return skip(&format!("no live frames: {error}")),
            }
        }
        // Never more than what the time allows; less where the machine is busy.
        let allowed = begun.elapsed().as_secs_f64() * 10_000.0 + 11.0;
        let sent = sender.sent();
        assert!(sent > 0 && sent as f64 <= allowed, "{sent} of {allowed}");
    });
}

/// `cargo test --release -p floodwall-device --test devices live_sender -- --ignored --nocapture`
#[test]
#[ignore = "prints figures"]
fn what_a_core_sends() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let Some(_device) = receiver(&pool) else { return };
        for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut sender = LiveSender::open("theirs", &config(v6, tcp, 0, 0)).unwrap();
            let begun = std::time::Instant::now();
            while begun.elapsed().as_millis() < 2000 {
                sender.send(LENGTH * 10).unwrap();
            }
            let rate = sender.sent() as f64 / begun.elapsed().as_secs_f64() / 1e6;
            println!("IPv6 {v6}, TCP {tcp}: {rate:.2} million a second");
        }
    });
}
