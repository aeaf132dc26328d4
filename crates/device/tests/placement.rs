//! The kernel's half of a veth in a namespace of its own: placed, and given back.

use std::path::PathBuf;
use std::process::Command;

use floodwall_base::MacAddr;
use floodwall_device::{
    AfPacket, AfPacketConfig, AfXdp, AfXdpConfig, Device, DeviceSpec, NapiPolicy, NapiRank,
    OpenConfig, Placement, PlacementConfig,
};
use floodwall_packet::{Burst, PacketList, Pool, PoolConfig};

use crate::namespace::{
    self, available, close, drop_capabilities, inside, ip, skip, wait, wait_millis,
};

/// A veth pair that is up: `ours` and `theirs`.
fn veth() -> bool {
    // The kernel reuses namespace numbers: notes for this one belong to one that is gone, where a
    // process was killed.
    note_paths().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let made = ip("link add ours type veth peer name theirs")
        && ip("link set ours up")
        && ip("link set theirs up");
    if !made {
        skip("no veth pair in this kernel");
    }
    made
}

/// Whether `ours` joins packets (GRO), as ethtool reports it; `None` where it does not.
fn joins() -> Option<bool> {
    let output = namespace::output(Command::new("ethtool").args(["-k", "ours"])).ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find(|line| line.starts_with("generic-receive-offload:"))?;
    Some(line.ends_with("on"))
}

fn take(half: NapiPolicy) -> Option<Placement> {
    let config = PlacementConfig { half, cores: vec![0], ..PlacementConfig::default() };
    available(Placement::take("ours", &config))
}

/// Notes of interfaces in this thread's namespace.
fn notes() -> usize {
    note_paths().len()
}

fn note_paths() -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let space = std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let Ok(entries) = std::fs::read_dir("/run/floodwall") else { return Vec::new() };
    let is_ours = |name: String| name.starts_with(&format!("placement-{space}-"));
    let ours = entries.flatten().filter(|entry| is_ours(entry.file_name().into_string().unwrap()));
    ours.map(|entry| entry.path()).collect()
}

/// What a thread of the kernel is set to: nice value and cores.
fn thread_of(words: &str) -> (i64, String) {
    let number: String =
        words.split('(').nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let behind = stat.rsplit(')').next().unwrap();
    let nice = behind.split_whitespace().nth(16).unwrap().parse().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    (nice, cores.unwrap().trim().to_owned())
}

#[test]
fn the_thread_stands_behind_the_worker_and_is_gone_with_the_device() {
    inside(|| {
        if !veth() {
            return;
        }
        let before = joins();
        for _ in 0..2 {
            let Some(placement) = take(NapiPolicy::NapiThread) else { return };
            let report = placement.report().clone();
            assert_eq!(report.place, "napi-thread", "{report:?}");
            assert_eq!(thread_of(&report.words), (5, "0".to_owned()));
            assert!(joins().is_none_or(|joins| joins));
            // A second placement changes nothing.
            let other = take(NapiPolicy::NapiThread).unwrap();
            assert_eq!(other.report().place, "left");
            close(other);
            assert_eq!(thread_of(&report.words), (5, "0".to_owned()));
            close(placement);
            assert_eq!((joins(), notes()), (before, 0));
        }
    });
}

/// Worker and kernel half of a packet socket have one share of a core together, as over AF_XDP.
#[test]
fn the_thread_of_a_packet_socket_counts_and_stands_as_its_worker_asks() {
    inside(|| {
        if !veth() {
            return;
        }
        let Some(placement) = take(NapiPolicy::NapiThread) else { return };
        let words = placement.report().words.clone();
        let Some(mut device) = available(AfPacket::open("ours", &AfPacketConfig::default())) else {
            return;
        };
        device.place(placement);
        assert!(device.half_time().ran.as_nanos() > 0, "its thread has begun");
        for (rank, nice) in
            [(NapiRank::Granted, -20), (NapiRank::Denied, 19), (NapiRank::Placed, 5)]
        {
            device.rank_half(rank);
            assert_eq!(thread_of(&words), (nice, "0".to_owned()), "{rank:?}");
        }
    });
}

#[test]
fn an_interface_that_vanishes_takes_its_place_with_it() {
    inside(|| {
        if !veth() {
            return;
        }
        let Some(placement) = take(NapiPolicy::NapiThread) else { return };
        assert!(ip("link del ours"));
        close(placement);
        assert_eq!(notes(), 0);
        // The next one of the name is another interface, and starts anew.
        assert!(veth());
        let placement = take(NapiPolicy::NapiThread).unwrap();
        assert_eq!(placement.report().place, "napi-thread", "{:?}", placement.report());
    });
}

#[test]
fn without_privileges_it_is_left_and_said() {
    inside(|| {
        if !veth() {
            return;
        }
        let word: DeviceSpec = "packet:ours".parse().unwrap();
        let Some(opened) = available(
            word.open(&OpenConfig { kernel_half: NapiPolicy::Leave, ..OpenConfig::default() }),
        ) else {
            return;
        };
        assert_eq!(opened.placement.place, "left");
        if !drop_capabilities() {
            return skip("cannot drop capabilities");
        }
        let placement = take(NapiPolicy::Auto).unwrap();
        assert_eq!(placement.report().place, "left");
        let said: Vec<_> = placement.report().lacks.iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|lack| lack.contains("CAP_NET_ADMIN")), "{said:?}");
        assert_eq!(notes(), 0, "nothing was changed, nothing is left to be undone");
    });
}

/// A device on `ours` with its kernel half in that place.
fn open(half: NapiPolicy) -> Option<AfPacket> {
    let mut device = available(AfPacket::open("ours", &AfPacketConfig::default()))?;
    device.place(take(half)?);
    Some(device)
}

/// Sends so many frames of a private protocol from the other end.
fn send_frames(count: usize, pool: &Pool) {
    let mut sender = AfPacket::open("theirs", &AfPacketConfig::default()).unwrap();
    let mut list = PacketList::new();
    for _ in 0..count {
        let mut frame = [0xff; 64];
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
        list.push_back(pool.packet_from_chunks([&frame[..]]).unwrap());
    }
    assert_eq!(sender.transmit(&mut list).unwrap(), count);
}

/// Receives as a worker does, until so many of those frames have come or nothing comes any more.
fn receive_frames(device: &mut AfPacket, count: usize, pool: &Pool) -> usize {
    let mut found = 0;
    while found < count {
        let mut burst = Burst::new();
        let taken = device.receive(pool, &mut burst).unwrap();
        found += burst.drain().filter(|packet| packet.first()[12..14] == [0x88, 0xb5]).count();
        if taken == 0 {
            device.rest();
            if !wait(device.readiness().unwrap()) {
                break;
            }
        }
    }
    found
}

#[test]
fn at_any_place_no_frame_is_lost_and_a_worker_that_sleeps_is_woken() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        if !veth() {
            return;
        }
        for half in NapiPolicy::ALL {
            let Some(mut device) = open(half) else { return };
            // More than the ring of a veth holds, in portions that fit it; asleep in between.
            for _ in 0..4 {
                send_frames(150, &pool);
                assert_eq!(receive_frames(&mut device, 150, &pool), 150, "{half}");
            }
            assert_eq!(device.stats().rx_lost(), 0, "{half}");
        }
    });
}

/// Checks that an empty ring causes one poll. Frames of the system may be in it before.
fn looks_behind_an_empty_ring(device: &mut AfPacket, pool: &Pool) {
    let polls = |device: &AfPacket| device.placement().unwrap().polls();
    for _ in 0..1000 {
        let before = polls(device);
        if device.receive(pool, &mut Burst::new()).unwrap() == 0 {
            return assert_eq!(polls(device), before + 1);
        }
    }
    panic!("the ring is never empty");
}

#[test]
fn while_packets_come_the_worker_runs_the_kernels_half_and_at_rest_nothing_does() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        if !veth() {
            return;
        }
        let Ok(placement) = Placement::take(
            "ours",
            &PlacementConfig { half: NapiPolicy::BusyPoll, ..PlacementConfig::default() },
        ) else {
            return skip("no privilege, or no io_uring that polls");
        };
        assert_eq!((placement.report().place, placement.polls()), ("busy-poll", 0));
        let mut device = AfPacket::open("ours", &AfPacketConfig::default()).unwrap();
        device.place(placement);
        let polls = |device: &AfPacket| device.placement().unwrap().polls();
        looks_behind_an_empty_ring(&mut device, &pool);
        send_frames(100, &pool);
        assert_eq!(receive_frames(&mut device, 100, &pool), 100);
        // Whether the card called in between is a matter of time.
        looks_behind_an_empty_ring(&mut device, &pool);
        let before = polls(&device);
        // Given back, it needs us no more: the card calls, and the socket becomes readable.
        device.rest();
        send_frames(1, &pool);
        assert!(wait(device.readiness().unwrap()));
        assert_eq!(polls(&device), before);
    });
}

/// After a NAPI run with packets, and after our own polls, the card's interrupt would be off for 20
/// ms; `rest` re-enables it at once. A veth's interrupts are raised within the sender's calls.
#[test]
fn behind_each_rest_the_card_calls_at_once_after_any_poller() {
    const ROUNDS: usize = 60;
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        // No other sender.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
        if !veth() {
            return;
        }
        let station = MacAddr([2, 0, 0, 0, 0, 0x0a]);
        let opened = match AfXdp::open("ours", &AfXdpConfig::new(station)) {
            Ok(opened) => opened,
            Err(error) => return skip(&error.to_string()),
        };
        let config = PlacementConfig { half: NapiPolicy::BusyPoll, ..PlacementConfig::default() };
        let Ok(placement) = Placement::take("ours", &config) else {
            return skip("no privilege, or no io_uring that polls");
        };
        let mut device = opened.queues.into_iter().next().unwrap();
        device.place(placement);
        let take = |device: &mut AfXdp| device.receive(&pool, &mut Burst::new()).unwrap();
        while device.pending() {
            take(&mut device);
        }
        device.rest();
        let mut sender = AfPacket::open("theirs", &AfPacketConfig::default()).unwrap();
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&station.0);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        let mut at_once = 0;
        for round in 0..ROUNDS {
            namespace::send(&mut sender, pool.packet_from(&frame).unwrap());
            at_once += usize::from(wait_millis(device.readiness().unwrap(), 0));
            assert!(wait(device.readiness().unwrap()), "it never comes");
            // As a worker does: what woke it; in every other round it looks behind that.
            (0..=round % 2).for_each(|_| assert!(take(&mut device) <= 1));
            device.rest();
        }
        assert!(at_once * 4 > ROUNDS * 3, "{at_once} of {ROUNDS} called at once");
    });
}

#[test]
fn after_a_rest_the_worker_runs_the_kernels_half_as_before() {
    inside(|| {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        if !veth() {
            return;
        }
        let Some(placement) = take(NapiPolicy::BusyPoll) else { return };
        let mut device = AfPacket::open("ours", &AfPacketConfig::default()).unwrap();
        device.place(placement);
        looks_behind_an_empty_ring(&mut device, &pool);
        for _ in 0..3 {
            device.rest();
            // From here on the card is silent: what comes is found by looking, or by a timer of
            // 20 ms, which is a thousand looks.
            looks_behind_an_empty_ring(&mut device, &pool);
            let before = device.placement().unwrap().polls();
            send_frames(20, &pool);
            let mut came = 0;
            while came < 20 && device.placement().unwrap().polls() - before < 500 {
                came += device.receive(&pool, &mut Burst::new()).unwrap();
            }
            assert!(came >= 20, "{came}: no poll has run");
        }
    });
}

#[test]
fn a_tap_has_nothing_to_place_unless_a_bridge_stands_behind_it() {
    inside(|| {
        assert!(Placement::of_tun("no-such-if").words.starts_with("nothing to place: "));
        if !ip("tuntap add dev fwtap mode tap") || !ip("link add fwbr type bridge") {
            return skip("no TAP or no bridge in this kernel");
        }
        assert!(Placement::of_tun("fwtap").words.starts_with("nothing to place: "));
        assert!(ip("link set fwtap master fwbr"));
        let words = Placement::of_tun("fwtap").words;
        assert!(words.contains("port of a bridge"), "{words}");
    });
}
