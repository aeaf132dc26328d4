//! Socket options and their effects.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::parity::datagrams::Datagrams;
use crate::parity::place::{Ip, Place};

pub(crate) async fn options_are_read_back<P: Place>(place: Arc<P>) {
    let one = place.one().await;
    match place.ip() {
        Ip::V4 => {
            assert!(one.multicast_loop_v4().unwrap());
            assert_eq!(one.multicast_ttl_v4().unwrap(), 1);
            assert_eq!(one.ttl().unwrap(), 64);
            assert_eq!(one.tos_v4().unwrap(), 0);
            one.set_ttl(33).unwrap();
            one.set_tos_v4(0x28).unwrap();
            one.set_multicast_ttl_v4(9).unwrap();
            one.set_multicast_loop_v4(false).unwrap();
            assert_eq!((one.ttl().unwrap(), one.tos_v4().unwrap()), (33, 0x28));
            assert_eq!(one.multicast_ttl_v4().unwrap(), 9);
            assert!(!one.multicast_loop_v4().unwrap());
            assert_eq!(one.set_ttl(0).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(one.set_ttl(256).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(one.ttl().unwrap(), 33);
        }
        Ip::V6 => {
            assert!(one.multicast_loop_v6().unwrap());
            assert_eq!(one.tclass_v6().unwrap(), 0);
            one.set_multicast_loop_v6(false).unwrap();
            one.set_tclass_v6(0x28).unwrap();
            assert!(!one.multicast_loop_v6().unwrap());
            assert_eq!(one.tclass_v6().unwrap(), 0x28);
        }
    }
}

pub(crate) async fn a_group_is_joined_and_left<P: Place>(place: Arc<P>) {
    let one = place.bind(place.any()).await.unwrap();
    match place.here() {
        IpAddr::V4(here) => {
            let group = Ipv4Addr::new(239, 1, 2, 3);
            one.join_multicast_v4(group, here).unwrap();
            let again = one.join_multicast_v4(group, here);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
            one.leave_multicast_v4(group, here).unwrap();
            let again = one.leave_multicast_v4(group, here);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
            let none = one.join_multicast_v4(Ipv4Addr::new(192, 0, 2, 1), here);
            assert_eq!(none.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        IpAddr::V6(_) => {
            let group: Ipv6Addr = "ff02::4242".parse().unwrap();
            one.join_multicast_v6(&group, 1).unwrap();
            let again = one.join_multicast_v6(&group, 1);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
            one.leave_multicast_v6(&group, 1).unwrap();
            let again = one.leave_multicast_v6(&group, 1);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        }
    }
}
