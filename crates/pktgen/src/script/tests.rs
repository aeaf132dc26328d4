//! Scripts of the classic generator: what is read, what is refused, what leaves.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use floodwall_base::{Family, Instant, Randomness, Units};
use floodwall_packet::{Burst, Engine, PacketList, Pool, PoolConfig, Round};

use super::*;
use crate::{Blast, Peer, Plan, StationConfig};

/// The script that came with the first measurements of such floods, line by line, its two addresses
/// lost as they are.
const CLASSIC: &str = include_str!("classic.sh");

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn read(text: &str) -> Result<ClassicScript, String> {
    ClassicScript::default()
        .read(text, &[("PGDEV", "/proc/net/pktgen/eth0")])
        .map_err(|e| e.to_string())
}

/// The first packets of a script, as frames.
fn frames(classic: &ClassicScript, from: IpAddr, count: usize) -> Vec<Vec<u8>> {
    let station =
        StationConfig { peer: Peer::Link(MacAddr([2, 0, 0, 0, 0, 9])), ..StationConfig::default() };
    let streams = vec![classic.stream(from).unwrap()];
    let mut blast = Blast::new(Plan { station, streams }).unwrap();
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let mut random = Randomness::from_number(7);
    let (mut arrived, mut departing) = (Burst::new(), PacketList::new());
    let (mut all, mut now) = (Vec::new(), Instant::ORIGIN);
    while all.len() < count && !blast.is_finished() {
        now += Duration::from_micros(1);
        let mut round = Round {
            now,
            pool: &pool,
            random: &mut random,
            arrived: &mut arrived,
            departing: &mut departing,
            budget: Units(64),
            peers: None,
        };
        blast.work(&mut round);
        while let Some(packet) = departing.pop_front() {
            let mut bytes = vec![0; packet.len()];
            packet.copy_out(0, &mut bytes);
            all.push(bytes);
        }
    }
    all.truncate(count);
    all
}

#[test]
fn the_classic_script_is_read_as_it_is_written() {
    let mut given = ClassicScript::default();
    given.parameter("dst_min 172.16.0.0").unwrap();
    given.parameter("dst_max 172.31.255.255").unwrap();
    let classic = given.read(CLASSIC, &[("PGDEV", "/proc/net/pktgen/eth0")]).unwrap();
    assert_eq!(classic.told, ["Configuring /proc/net/pktgen/eth0"]);
    let stream = classic.stream(OURS.into()).unwrap();
    assert_eq!((stream.count, stream.repeats, stream.flow_packets), (Some(10_000_000), 1, 10));
    assert_eq!(stream.flows, Some(Flows { count: 32_768, in_sequence: false }));
    assert_eq!(stream.spreads.map(|how| how.dst_addr), Some(Spread::Random));
    let frames = frames(&classic, OURS.into(), 4000);
    assert!(frames.iter().all(|frame| frame.len() == 60), "bytes without the checksum");
    let to: HashSet<&[u8]> = frames.iter().map(|frame| &frame[30..34]).collect();
    assert!(to.iter().all(|addr| addr[0] == 172 && (16..32).contains(&addr[1])));
    assert!(to.len() > 3700, "its flows are many: {}", to.len());
    // Without the range that the script has lost, the destination must be given otherwise.
    let lost = read(CLASSIC).unwrap();
    assert!(!lost.has_destination());
    assert!(lost.stream(OURS.into()).unwrap_err().to_string().contains("no destination"));
}

#[test]
fn functions_redirections_and_braces_of_such_scripts_are_understood() {
    let text = "#! /bin/sh\n\
        function pgset() {\n    local result\n    echo $1 > $PGDEV\n    if true; then { :; }\n fi\n\
        }\n\
        pg()\n{\n    echo inject > $PGDEV\n}\n\
        modprobe pktgen\nPGDEV=/proc/net/pktgen/kpktgend_0\n\
        pgset \"rem_device_all\"\npgset \"add_device eth1\"\npgset \"max_before_softirq 10000\"\n\
        PGDEV=/proc/net/pktgen/eth1\nSIZE=128 # bytes\npgset \"pkt_size ${SIZE}\"\n\
        pgset 'dst 10.9.0.1'\npgset \"dst_mac 02:00:00:00:00:07\"\n\
        echo \"count 3\" > $PGDEV\npg\ncat $PGDEV\n";
    let classic = read(text).unwrap();
    assert_eq!(classic.device.as_deref(), Some("eth1"));
    assert_eq!(classic.dst_mac, Some(MacAddr([2, 0, 0, 0, 0, 7])));
    let frames = frames(&classic, OURS.into(), 10);
    assert_eq!(frames.len(), 3);
    assert!(frames.iter().all(|frame| frame.len() == 128 && frame[30..34] == [10, 9, 0, 1]));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_word() {
    for (text, says) in [
        ("\n\npgset \"clone_skp 1\"", "line 3: `clone_skp`: is no parameter"),
        ("pgset \"count many\"", "line 1: `many`: is not a number"),
        ("pgset \"count\"", "line 1: `count`: no value"),
        ("pgset \"count 1 2\"", "line 1: `2`: one value"),
        ("pgset", "line 1: ``: a parameter is missing"),
        ("A=1\npgset \"flag IPDST_RANDOM\"", "line 2: `IPDST_RANDOM`: is no flag"),
        ("pgset \"dst_min 10.0.0\"", "line 1: `10.0.0`: is not an address"),
        ("pgset \"flows 100000\"", "line 1: `100000`: there are 65536"),
        ("rm -rf /", "line 1: `rm`: is no line of such a script"),
        ("X=\"open", "line 1: `X=open`: the closing \" is missing"),
        ("pgset \"${COUNT\"", "line 1: `${COUNT`: `}` is missing"),
        ("COUNT=count 5", "line 1: `5`: stands behind an assignment"),
        ("pgset() {\necho\n", "line 2: `pgset`: the function does not end"),
        ("pgset \"proto sctp\"", "line 1: `sctp`: is neither"),
        ("pgset \"fragments 12\"", "line 1: `12`: fragments are cut in multiples"),
        ("pgset \"headers odd\"", "line 1: `odd`: are no headers"),
    ] {
        let said = read(text).unwrap_err();
        assert!(said.contains(says), "{text}: {said}");
    }
    for (text, says) in [
        ("pgset \"dst_max 10.0.0.9\"", "no first"),
        ("pgset \"dst_min 10.0.0.9\"\npgset \"dst_max 10.0.0.1\"", "backwards"),
        ("pgset \"dst fd00::1\"", "two families"),
    ] {
        let said = read(text).unwrap().stream(OURS.into()).unwrap_err().to_string();
        assert!(said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_variable_that_names_itself_does_not_grow() {
    let mut text = "A=xxxxxxxxxxxxxxxx\n".to_owned();
    text.push_str(&"A=$A$A\n".repeat(40));
    assert!(read(&text).unwrap_err().contains("grows too long"));
}

#[test]
fn every_parameter_shows_in_the_packets() {
    let with = |more: &str| {
        let text = format!("pgset \"dst 10.9.0.1\"\npgset \"dst_max 10.9.0.4\"\n{more}");
        read(&text).unwrap()
    };
    let to = |classic: &ClassicScript, count| -> Vec<u8> {
        frames(classic, OURS.into(), count).iter().map(|frame| frame[33]).collect()
    };
    assert_eq!(to(&with(""), 6), [1, 2, 3, 4, 1, 2], "one after the other without IPDST_RND");
    assert_eq!(to(&with("pgset \"clone_skb 3\""), 7), [1, 1, 1, 2, 2, 2, 3]);
    let in_sequence = "pgset \"flows 2\"\npgset \"flowlen 3\"\npgset \"flag FLOW_SEQ\"";
    assert_eq!(to(&with(in_sequence), 7), [1, 1, 1, 2, 2, 2, 3]);
    let words = ["udp_src_min 5", "udp_src_max 6", "udp_dst_min 7", "udp_dst_max 7"];
    let ports = with(&words.map(|words| format!("pgset \"{words}\"\n")).concat());
    let ports: Vec<_> = frames(&ports, OURS.into(), 3).iter().map(|f| (f[35], f[37])).collect();
    assert_eq!(ports, [(5, 7), (6, 7), (5, 7)]);
    let sizes = with("pgset \"min_pkt_size 60\"\npgset \"max_pkt_size 62\"");
    let sizes: Vec<_> = frames(&sizes, OURS.into(), 4).iter().map(Vec::len).collect();
    assert_eq!(sizes, [60, 61, 62, 60]);
    for (proto, number) in [("udp", 17), ("icmp", 1), ("tcp-syn", 6), ("tcp-rst", 6)] {
        let frames = frames(&with(&format!("pgset \"proto {proto}\"")), OURS.into(), 2);
        assert!(frames.iter().all(|frame| frame[23] == number && frame.len() == 60), "{proto}");
    }
    let six =
        read("pgset \"dst6 fd00::9\"\npgset \"headers chain\"\npgset \"hop_limit 1\"").unwrap();
    let ours: IpAddr = "fd00::2".parse().unwrap();
    assert_eq!(six.stream(ours).unwrap().family(), Family::V6);
    assert!(
        frames(&six, ours, 3).iter().all(|f| f[12..14] == [0x86, 0xdd] && f[20] == 0 && f[21] == 1)
    );
    let cut = with("pgset \"pkt_size 500\"\npgset \"fragments 200\"");
    let frames = frames(&cut, OURS.into(), 3);
    assert!(frames.iter().all(|frame| frame.len() <= 234), "{:?}", frames[0].len());
}

#[test]
fn a_count_of_zero_has_no_end_and_a_gap_of_zero_waits_for_nothing() {
    let endless = read("pgset \"count 0\"\npgset \"ipg 0\"\npgset \"dst 10.9.0.1\"").unwrap();
    let stream = endless.stream(OURS.into()).unwrap();
    assert_eq!((stream.count, stream.intended(1 << 40).is_some()), (None, true));
    assert_eq!(stream.pace.intended(1000), Duration::from_micros(1));
    let slow = read("pgset \"delay 5000\"\npgset \"dst 10.9.0.1\"").unwrap();
    assert_eq!(slow.stream(OURS.into()).unwrap().pace.intended(2), Duration::from_micros(10));
}
