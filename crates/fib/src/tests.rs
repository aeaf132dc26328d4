//! What all tests of the routing tables share, and the tests of its verbs.

mod evolution;
mod many;
mod oracle;
mod verbs;
mod work;

use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use floodwall_base::{Address, HashKey, IfIndex, Instant, Prefix};

use crate::lpm::LpmFamily;
use crate::{Dump, Fib, FibConfig, Route};

/// The moment at which tests begin.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000_000);

pub(crate) fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

/// The same prefix in either family: `a.b.c.d/len` of IPv4, with 96 bits more behind in IPv6.
pub(crate) fn prefix<A: Address>(text: &str) -> Prefix<A> {
    let (addr, len) = text.split_once('/').unwrap();
    Prefix::new(self::addr(addr), len.parse().unwrap()).unwrap()
}

pub(crate) fn addr<A: Address>(text: &str) -> A {
    let v4: Ipv4Addr = text.parse().unwrap();
    A::from_bits_aligned(u128::from(v4.to_bits()) << 96)
}

/// An on-link route, which tests recognize by its interface.
pub(crate) fn route<A: Address>(text: &str, iface: u16) -> Route<A> {
    Route::on_link(prefix(text), IfIndex(iface))
}

pub(crate) fn fib<A: LpmFamily>() -> Fib<A> {
    Fib::alone(FibConfig::default(), HashKey::new(1, 2), START)
}

/// Removes every route, in steps; returns how many went.
pub(crate) fn remove_all<A: LpmFamily>(fib: &mut Fib<A>, now: Instant) -> usize {
    let (mut dump, mut gone) = (Dump::default(), 0);
    while let Some(some) = fib.remove_some(&mut dump, 100, now, |_| true) {
        gone += some;
    }
    while fib.sweep(now, 100) > 0 {
        fib.publish(now);
    }
    gone
}

/// Runs a test in both families.
macro_rules! both {
    ($($name:ident => $test:ident;)*) => {
        $(#[test]
        fn $name() {
            $test::<core::net::Ipv4Addr>();
            $test::<core::net::Ipv6Addr>();
        })*
    };
}
pub(crate) use both;

const _: fn() = || {
    fn family<A: LpmFamily>() {}
    family::<Ipv4Addr>();
    family::<Ipv6Addr>();
};
