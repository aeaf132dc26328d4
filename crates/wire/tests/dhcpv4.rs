//! DHCPv4 messages, against smoltcp's reading of them and against malformed fields.

use std::net::Ipv4Addr;

use floodwall_base::MacAddr;
use floodwall_wire::dhcpv4::option;
use floodwall_wire::{Dhcpv4Error, Dhcpv4Fields, Dhcpv4Message, Dhcpv4Type};
use proptest::prelude::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

fn fields() -> Dhcpv4Fields {
    Dhcpv4Fields {
        is_reply: true,
        xid: 0x1234_5678,
        secs: 9,
        wants_broadcast: true,
        ciaddr: Ipv4Addr::new(10, 0, 0, 3),
        yiaddr: Ipv4Addr::new(10, 0, 0, 4),
        chaddr: MAC,
    }
}

fn message(options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; 1500];
    let len = fields().emit_into(options, &mut out).unwrap();
    out.truncate(len);
    out
}

#[test]
fn smoltcp_reads_what_we_write() {
    let bytes = message(&[
        (option::MESSAGE_TYPE, &[2]),
        (option::SERVER_ID, &[10, 0, 0, 1]),
        (option::MASK, &[255, 255, 255, 0]),
        (option::ROUTERS, &[10, 0, 0, 1]),
        (option::LEASE_TIME, &[0, 0, 2, 0]),
    ]);
    let packet = smoltcp::wire::DhcpPacket::new_checked(&bytes[..]).unwrap();
    let repr = smoltcp::wire::DhcpRepr::parse(&packet).unwrap();
    assert_eq!(repr.transaction_id, 0x1234_5678);
    assert_eq!((repr.your_ip, repr.broadcast, repr.secs), (fields().yiaddr, true, 9));
    assert_eq!(repr.subnet_mask, Some(Ipv4Addr::new(255, 255, 255, 0)));
    assert_eq!((repr.lease_duration, repr.router), (Some(512), Some(Ipv4Addr::new(10, 0, 0, 1))));
    let ours = Dhcpv4Message::parse(&bytes).unwrap();
    assert_eq!((ours.kind(), ours.xid()), (Some(Dhcpv4Type::OFFER), 0x1234_5678));
    assert_eq!(
        (ours.yiaddr(), ours.ciaddr(), ours.chaddr()),
        (fields().yiaddr, fields().ciaddr, MAC)
    );
    assert!(ours.is_reply() && ours.wants_broadcast());
    assert_eq!(ours.number(option::LEASE_TIME), Some(512));
}

#[test]
fn malformed_messages_are_told_apart() {
    let good = message(&[(option::MESSAGE_TYPE, &[2])]);
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Dhcpv4Message::parse(&bytes).err()
    };
    assert_eq!(Dhcpv4Message::parse(&good[..239]).err(), Some(Dhcpv4Error::Truncated));
    assert_eq!(broken(0, 3), Some(Dhcpv4Error::Op));
    assert_eq!(broken(1, 6), Some(Dhcpv4Error::Hardware));
    assert_eq!(broken(2, 16), Some(Dhcpv4Error::Hardware));
    assert_eq!(broken(239, 0), Some(Dhcpv4Error::Cookie));
    assert_eq!(broken(241, 200), Some(Dhcpv4Error::Option));
    let one_byte = [&good[..240], &[53]].concat();
    assert_eq!(Dhcpv4Message::parse(&one_byte).err(), Some(Dhcpv4Error::Option));
    assert!(Dhcpv4Message::parse(&good[..240]).is_ok(), "no options at all, not even an end");
}

#[test]
fn an_overload_is_followed_once_and_never_from_where_it_leads() {
    let mut bytes = message(&[(option::OVERLOAD, &[3])]);
    // `file` says that itself and `sname` hold options; so does `sname`.
    bytes[108..115].copy_from_slice(&[option::OVERLOAD, 1, 3, option::MESSAGE_TYPE, 1, 5, 255]);
    bytes[44..52].copy_from_slice(&[option::OVERLOAD, 1, 3, option::MTU, 2, 5, 0xdc, 255]);
    let message = Dhcpv4Message::parse(&bytes).unwrap();
    assert_eq!(message.options().count(), 5);
    assert_eq!(message.kind(), Some(Dhcpv4Type::ACK));
    assert_eq!(message.array::<2>(option::MTU), Some([5, 0xdc]));
    // What is not announced as options is none.
    bytes[242] = 1;
    assert_eq!(Dhcpv4Message::parse(&bytes).unwrap().options().count(), 3);
    bytes[109] = 255;
    assert_eq!(Dhcpv4Message::parse(&bytes).err(), Some(Dhcpv4Error::Option));
}

#[test]
fn an_option_in_pieces_is_joined_and_one_that_is_too_long_is_none() {
    let long: Vec<u8> = (0..=255).chain(0..=99).collect();
    let bytes = message(&[(option::ROUTES, &long), (option::MASK, &[255; 4])]);
    let message = Dhcpv4Message::parse(&bytes).unwrap();
    let mut room = [0; 400];
    assert_eq!(message.join(option::ROUTES, &mut room), Some(&long[..]));
    assert_eq!(message.join(option::ROUTES, &mut [0; 300]), None);
    assert_eq!(message.join(option::SEARCH, &mut room), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_walk_for_ever(
        mut bytes in proptest::collection::vec(any::<u8>(), 240..600),
        patch in any::<bool>(),
    ) {
        if patch {
            bytes[..3].copy_from_slice(&[2, 1, 6]);
            bytes[236..240].copy_from_slice(&[99, 130, 83, 99]);
        }
        if let Ok(message) = Dhcpv4Message::parse(&bytes) {
            prop_assert!(message.options().count() <= bytes.len());
            let _ = message.join(option::ROUTES, &mut [0; 64]);
        }
    }
}
