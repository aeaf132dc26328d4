//! Drops below IP: each is provoked by a frame and counted once by its reason, unanswered.
//!
//! What each call of `expect_drop` checks is documented at `Rig::expect_drop`. Reading: RFC 894,
//! IEEE 802.1Q, RFC 826.

use std::net::Ipv4Addr;

use floodwall_base::{DropReason, IfIndex, MacAddr};
use floodwall_tests::craft::{
    FAMILIES, HOST, PEER, addr, echo, frame, from_peer, mac, udp_to_port, v4,
};
use floodwall_tests::{Rig, drops_between, ethernet_config};
use floodwall_wire::{ArpOperation, ArpPacket, EtherType, arp};

fn rig() -> Rig {
    Rig::with_neighbor(&ethernet_config(HOST), PEER)
}

fn request() -> ArpPacket {
    ArpPacket {
        operation: ArpOperation::REQUEST,
        sender_link_addr: mac(PEER),
        sender_addr: v4(PEER),
        target_link_addr: MacAddr::ZERO,
        target_addr: v4(HOST),
    }
}

fn arp_frame(packet: &ArpPacket) -> Vec<u8> {
    let mut bytes = [0; arp::PACKET_LEN];
    packet.emit(&mut bytes);
    frame(MacAddr::BROADCAST, mac(PEER), EtherType::ARP, &bytes)
}

#[test]
fn a_packet_of_no_interface_is_dropped() {
    let mut rig = rig();
    for n in [2, 63, 64, u16::MAX] {
        let before = rig.stats();
        let mut packet = rig.pool.packet_from(&from_peer(b"E")).unwrap();
        packet.set_iface(IfIndex(n));
        let ((), departed) = rig.round(vec![packet], |stack, round| {
            floodwall_packet::Engine::round(stack, round);
        });
        let dropped = vec![(DropReason::InterfaceUnknown, 1)];
        assert_eq!(drops_between(&before, &rig.stats()), (dropped, vec![]));
        assert!(departed.is_empty() && rig.conservation().holds());
    }
}

#[test]
fn a_frame_that_ends_within_its_link_header_is_dropped() {
    let mut rig = rig();
    let whole = udp_to_port(FAMILIES[0], 9, b"");
    let whole = from_peer(&whole);
    for len in 0..14 {
        rig.expect_drop(&format!("{len}"), &whole[..len], DropReason::FrameTruncated, None);
    }
    // A tag's type announces four bytes more, and these announce a type.
    let tagged = [&whole[..12], &[0x81, 0, 0, 0, 0x81, 0, 0, 0, 0x08, 0]].concat();
    for len in 14..tagged.len() {
        let reason = DropReason::FrameTruncated;
        rig.expect_drop(&format!("tagged, {len}"), &tagged[..len], reason, None);
    }
}

#[test]
fn a_frame_for_another_station_is_dropped() {
    for family in FAMILIES {
        let packet = udp_to_port(family, 9, b"");
        let mut bytes = from_peer(&packet);
        bytes[5] = 9;
        rig().expect_drop("another station", &bytes, DropReason::FrameNotForUs, None);
        bytes[..6].copy_from_slice(&[0; 6]);
        rig().expect_drop("no station", &bytes, DropReason::FrameNotForUs, None);
    }
}

#[test]
fn a_frame_from_a_group_is_dropped() {
    for family in FAMILIES {
        for source in [MacAddr::BROADCAST, MacAddr([1, 0, 0x5e, 0, 0, 1])] {
            let mut bytes = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
            bytes[6..12].copy_from_slice(&source.0);
            rig().expect_drop("from a group", &bytes, DropReason::FrameSourceGroup, None);
        }
    }
}

#[test]
fn a_frame_of_a_vlan_is_dropped_and_a_priority_tag_does_not() {
    for family in FAMILIES {
        let plain = from_peer(&echo(addr(family, PEER), addr(family, HOST), b"?"));
        let tagged = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
        rig().expect_drop("VLAN 5", &tagged(&[0x81, 0, 0, 5]), DropReason::FrameVlan, None);
        let two = tagged(&[0x88, 0xa8, 0, 0, 0x81, 0, 0x60, 1]);
        rig().expect_drop("VLAN 1 in a priority tag", &two, DropReason::FrameVlan, None);
        let answers = rig().lives("priority 7", &tagged(&[0x81, 0, 0xe0, 0]));
        assert_eq!(answers.len(), 1, "an echo reply");
    }
}

#[test]
fn a_protocol_that_is_neither_ip_nor_arp_is_dropped() {
    let mut rig = rig();
    // Among them lengths (IEEE 802.3), PPPoE, MPLS, 802.1X, LLDP and the tags' neighbours.
    for kind in [0, 46, 0x05dc, 0x0600, 0x0801, 0x8864, 0x8847, 0x888e, 0x88cc, 0xffff] {
        let bytes = frame(mac(HOST), mac(PEER), EtherType(kind), &[0x45; 40]);
        rig.expect_drop(&format!("{kind:#06x}"), &bytes, DropReason::EtherTypeUnknown, None);
    }
}

#[test]
fn a_malformed_arp_packet_is_dropped() {
    let mut rig = rig();
    let whole = arp_frame(&request());
    for len in 14..whole.len() {
        rig.expect_drop(&format!("{len}"), &whole[..len], DropReason::ArpMalformed, None);
    }
    // Hardware type, protocol type, both lengths, the operation.
    for at in [14, 15, 16, 17, 18, 19, 20, 21] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        rig.expect_drop(&format!("byte {at}"), &bytes, DropReason::ArpMalformed, None);
    }
}

#[test]
fn arp_about_others_is_dropped() {
    let mut rig = rig();
    let other = ArpPacket { target_addr: v4(9), ..request() };
    rig.expect_drop("request for .9", &arp_frame(&other), DropReason::ArpNotForUs, None);
    // An unsolicited announcement of an unknown neighbour makes no entry.
    let unknown = ArpPacket { sender_addr: v4(8), target_addr: v4(8), ..request() };
    rig.expect_drop("announcement", &arp_frame(&unknown), DropReason::ArpNotForUs, None);
    let reply = ArpPacket { operation: ArpOperation::REPLY, sender_addr: v4(8), ..request() };
    rig.expect_drop("an unsolicited reply", &arp_frame(&reply), DropReason::ArpNotForUs, None);
    assert_eq!(rig.stack.neighbors_v4().iter().count(), 1, "the peer alone");
}

#[test]
fn arp_from_an_impossible_sender_is_dropped() {
    let mut rig = rig();
    let group = Ipv4Addr::new(224, 0, 0, 1);
    let bad = [
        ArpPacket { sender_link_addr: MacAddr::BROADCAST, ..request() },
        ArpPacket { sender_link_addr: MacAddr::ZERO, ..request() },
        ArpPacket { sender_link_addr: mac(HOST), ..request() },
        ArpPacket { sender_addr: group, ..request() },
        ArpPacket { sender_addr: Ipv4Addr::BROADCAST, ..request() },
        ArpPacket { sender_addr: v4(255), ..request() },
        ArpPacket { sender_addr: Ipv4Addr::LOCALHOST, ..request() },
    ];
    for packet in bad {
        let what = format!("{packet:?}");
        rig.expect_drop(&what, &arp_frame(&packet), DropReason::ArpSenderInvalid, None);
    }
}
