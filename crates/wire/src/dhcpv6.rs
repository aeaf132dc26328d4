//! The DHCPv6 message: a type, a transaction id and options, some of which hold options; the upper
//! layer of UDP ports 546 and 547.
//!
//! Called by `dhcp` (both ways) and its tests. Invariants: the options of a [`Dhcpv6Message`] all
//! end within it; options within options are read only where a reader goes into them, two levels
//! at most, each by its own walk, so that no walk recurses and each byte is seen once a level. Read
//! first: RFC 8415 sections 8, 21.1 to 21.14. Not here: what options mean (`dhcp`), and relay
//! messages, which clients never see.

use core::net::Ipv6Addr;

use thiserror::Error;

use crate::field::{self, BufferTooShort, FieldWriter};

/// Bytes before the options.
pub const FIXED_LEN: usize = 4;
/// The server's UDP port.
pub const SERVER_PORT: u16 = 547;
/// The client's UDP port.
pub const CLIENT_PORT: u16 = 546;
/// The group of all servers and relays of a link (RFC 8415 section 7.1).
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// The longest DUID, its type included (RFC 8415 section 11.1).
pub const DUID_LEN_MAX: usize = 130;

/// Numbers of options (RFC 8415 section 21, RFC 3646).
pub mod option {
    /// DUID of the client.
    pub const CLIENT_ID: u16 = 1;
    /// DUID of the server.
    pub const SERVER_ID: u16 = 2;
    /// Identity association for addresses.
    pub const IA_NA: u16 = 3;
    /// An address of an identity association.
    pub const IA_ADDR: u16 = 5;
    /// Options that the client wants.
    pub const REQUEST: u16 = 6;
    /// Preference of a server.
    pub const PREFERENCE: u16 = 7;
    /// Hundredths of a second since the exchange began.
    pub const ELAPSED: u16 = 8;
    /// Outcome, and a text.
    pub const STATUS: u16 = 13;
    /// Domain name servers, best first.
    pub const DNS: u16 = 23;
    /// Domains to search.
    pub const SEARCH: u16 = 24;
    /// Seconds after which information is asked for again.
    pub const REFRESH_TIME: u16 = 32;
    /// Maximum interval between Solicit messages, in seconds.
    pub const SOL_MAX_RT: u16 = 82;
    /// Maximum interval between Information-request messages, in seconds.
    pub const INF_MAX_RT: u16 = 83;
}

/// What a message is for (RFC 8415 section 7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv6Type(pub u8);

impl Dhcpv6Type {
    /// The client looks for servers.
    pub const SOLICIT: Self = Self(1);
    /// A server offers.
    pub const ADVERTISE: Self = Self(2);
    /// The client requests what was offered.
    pub const REQUEST: Self = Self(3);
    /// The client extends its lease at the server that granted it.
    pub const RENEW: Self = Self(5);
    /// The client extends its lease at any server.
    pub const REBIND: Self = Self(6);
    /// A server's answer.
    pub const REPLY: Self = Self(7);
    /// The client returns its addresses.
    pub const RELEASE: Self = Self(8);
    /// An address is in use by another host.
    pub const DECLINE: Self = Self(9);
    /// The client asks for settings without an address.
    pub const INFORMATION_REQUEST: Self = Self(11);
}

/// An outcome (RFC 8415 section 21.13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv6Status(pub u16);

impl Dhcpv6Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// The server has no addresses for the client.
    pub const NO_ADDRS_AVAIL: Self = Self(2);
    /// The server does not know the binding.
    pub const NO_BINDING: Self = Self(3);
    /// The addresses do not fit the client's link.
    pub const NOT_ON_LINK: Self = Self(4);
}

/// Why bytes are not a DHCPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Dhcpv6Error {
    /// Fewer than four bytes.
    #[error("the DHCPv6 message is cut short")]
    Truncated,
    /// An option reaches beyond the message.
    #[error("a DHCPv6 option reaches beyond the message")]
    Option,
}

/// A checked message.
#[derive(Clone, Copy, Debug)]
pub struct Dhcpv6Message<'a> {
    fixed: &'a [u8; FIXED_LEN],
    options: Dhcpv6Options<'a>,
}

impl<'a> Dhcpv6Message<'a> {
    /// Checks a message: the fixed part, then the walk over all options.
    ///
    /// # Errors
    /// See [`Dhcpv6Error`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Dhcpv6Error> {
        let (fixed, rest) = bytes.split_first_chunk().ok_or(Dhcpv6Error::Truncated)?;
        let options = Dhcpv6Options::checked(rest).ok_or(Dhcpv6Error::Option)?;
        Ok(Self { fixed, options })
    }

    /// The type of the message.
    #[must_use]
    pub const fn kind(&self) -> Dhcpv6Type {
        Dhcpv6Type(self.fixed[0])
    }

    /// The number of 24 bits by which the client matches its answers.
    #[must_use]
    pub fn xid(&self) -> u32 {
        field::long::<0, _>(self.fixed) & 0x00ff_ffff
    }

    /// Every option.
    #[must_use]
    pub const fn options(&self) -> Dhcpv6Options<'a> {
        self.options
    }
}

/// A walk over options: of a message, or of an option that holds options.
#[derive(Clone, Copy, Debug)]
pub struct Dhcpv6Options<'a> {
    rest: &'a [u8],
}

impl<'a> Dhcpv6Options<'a> {
    /// The options in `bytes`; `None` where one of them reaches beyond.
    fn checked(bytes: &'a [u8]) -> Option<Self> {
        let mut walk = Self { rest: bytes };
        while let [_, _, rest @ ..] = walk.rest {
            let (len, rest) = rest.split_first_chunk::<2>()?;
            walk.rest = rest.get(usize::from(u16::from_be_bytes(*len))..)?;
        }
        walk.rest.is_empty().then_some(Self { rest: bytes })
    }

    /// The first value of an option.
    #[must_use]
    pub fn find(mut self, code: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, value)| (found == code).then_some(value))
    }

    /// An option of exactly `N` bytes.
    #[must_use]
    pub fn array<const N: usize>(self, code: u16) -> Option<[u8; N]> {
        self.find(code).and_then(|value| value.try_into().ok())
    }

    /// An option that is a number of 32 bits.
    #[must_use]
    pub fn number(self, code: u16) -> Option<u32> {
        self.array(code).map(u32::from_be_bytes)
    }

    /// The outcome: success where none is given.
    #[must_use]
    pub fn status(self) -> Dhcpv6Status {
        let code = self.find(option::STATUS).and_then(|value| value.first_chunk::<2>());
        code.map_or(Dhcpv6Status::SUCCESS, |code| Dhcpv6Status(u16::from_be_bytes(*code)))
    }

    /// The identity associations for addresses that can be read.
    pub fn associations(self) -> impl Iterator<Item = IaNa<'a>> {
        self.filter(|(code, _)| *code == option::IA_NA).filter_map(|(_, value)| IaNa::read(value))
    }
}

impl<'a> Iterator for Dhcpv6Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        let len = usize::from(field::word::<2, _>(head));
        let (value, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some((field::word::<0, _>(head), value))
    }
}

/// An identity association for addresses (RFC 8415 section 21.4).
#[derive(Clone, Copy, Debug)]
pub struct IaNa<'a> {
    /// Its identifier, which the client chose.
    pub iaid: u32,
    /// Seconds until the addresses are renewed at the same server (T1).
    pub t1: u32,
    /// Seconds until they are renewed at any server (T2).
    pub t2: u32,
    /// Its addresses and outcome.
    pub options: Dhcpv6Options<'a>,
}

impl<'a> IaNa<'a> {
    fn read(value: &'a [u8]) -> Option<Self> {
        let (head, rest) = value.split_first_chunk::<12>()?;
        Some(Self {
            iaid: field::long::<0, _>(head),
            t1: field::long::<4, _>(head),
            t2: field::long::<8, _>(head),
            options: Dhcpv6Options::checked(rest)?,
        })
    }

    /// The addresses that can be read.
    pub fn addresses(&self) -> impl Iterator<Item = IaAddr> + use<'a> {
        let inside = self.options.filter(|(code, _)| *code == option::IA_ADDR);
        inside.filter_map(|(_, value)| {
            let (head, rest) = value.split_first_chunk::<24>()?;
            Some(IaAddr {
                addr: Ipv6Addr::from(field::bytes::<0, 16, _>(head)),
                preferred: field::long::<16, _>(head),
                valid: field::long::<20, _>(head),
                status: Dhcpv6Options::checked(rest)?.status(),
            })
        })
    }
}

/// An address of an identity association (RFC 8415 section 21.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IaAddr {
    /// The address.
    pub addr: Ipv6Addr,
    /// Seconds for which new flows may use it.
    pub preferred: u32,
    /// Seconds for which it is ours.
    pub valid: u32,
    /// What the server says of it alone.
    pub status: Dhcpv6Status,
}

/// A message being written: options one after another, into a buffer that may be too short.
pub struct Dhcpv6Writer<'a> {
    writer: FieldWriter<'a>,
}

impl<'a> Dhcpv6Writer<'a> {
    /// Begins a message; of `xid` 24 bits count.
    #[must_use]
    pub fn new(kind: Dhcpv6Type, xid: u32, out: &'a mut [u8]) -> Self {
        let mut writer = FieldWriter::new(out);
        writer.put(&(u32::from(kind.0) << 24 | xid & 0x00ff_ffff).to_be_bytes());
        Self { writer }
    }

    /// Appends an option with the value `parts`, one after another; none where they are more
    /// than 65,535 bytes.
    pub fn option(&mut self, code: u16, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(len) = u16::try_from(len) else { return };
        self.writer.put(&code.to_be_bytes());
        self.writer.put(&len.to_be_bytes());
        parts.iter().for_each(|part| self.writer.put(part));
    }

    /// Appends an identity association with the address `addr`, if any, and lifetimes of zero:
    /// the server decides them.
    pub fn association(&mut self, iaid: u32, addr: Option<Ipv6Addr>) {
        let mut head = [0; 12];
        field::put_long::<0, _>(&mut head, iaid);
        let mut inner = [0; 28];
        field::put_word::<0, _>(&mut inner, option::IA_ADDR);
        field::put_word::<2, _>(&mut inner, 24);
        if let Some(addr) = addr {
            field::put::<4, 16, _>(&mut inner, addr.octets());
        }
        let inner = addr.map_or(&[][..], |_| &inner);
        self.option(option::IA_NA, &[&head, inner]);
    }

    /// Ends the message; returns its length.
    ///
    /// # Errors
    /// The buffer is too short.
    pub fn finish(self) -> Result<usize, BufferTooShort> {
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);

    fn message() -> ([u8; 200], usize) {
        let mut out = [0; 200];
        let mut writer = Dhcpv6Writer::new(Dhcpv6Type::REPLY, 0xff12_3456, &mut out);
        writer.option(option::CLIENT_ID, &[&[0, 3], &[0, 1, 9]]);
        writer.association(5, Some(ADDR));
        writer.association(6, None);
        writer.option(option::STATUS, &[&[0, 2], b"none"]);
        let len = writer.finish().expect("room");
        (out, len)
    }

    #[test]
    fn what_is_written_is_read() {
        let (bytes, len) = message();
        let message = Dhcpv6Message::parse(bytes.get(..len).expect("all")).expect("a message");
        assert_eq!((message.kind(), message.xid()), (Dhcpv6Type::REPLY, 0x0012_3456));
        assert_eq!(message.options().find(option::CLIENT_ID), Some(&[0, 3, 0, 1, 9][..]));
        assert_eq!(message.options().status(), Dhcpv6Status::NO_ADDRS_AVAIL);
        let mut all = message.options().associations();
        let with = all.next().expect("one");
        let addr = IaAddr { addr: ADDR, preferred: 0, valid: 0, status: Dhcpv6Status::SUCCESS };
        assert_eq!((with.iaid, with.addresses().next()), (5, Some(addr)));
        let without = all.next().expect("two");
        assert_eq!((without.iaid, without.addresses().count(), all.count()), (6, 0, 0));
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_or_ends_between_options() {
        let (bytes, len) = message();
        let whole = |cut: usize| Dhcpv6Message::parse(bytes.get(..cut).expect("a part")).is_ok();
        let ends: Vec<_> = (0..=len).filter(|cut| whole(*cut)).collect();
        assert_eq!(ends, [4, 13, 57, 73, len]);
    }

    #[test]
    fn options_within_options_that_reach_beyond_are_not_read() {
        let (mut bytes, len) = message();
        // The length of the address within the association.
        bytes[32] = 25;
        let message = Dhcpv6Message::parse(&bytes[..len]).expect("the outer walk is whole");
        assert_eq!(message.options().associations().count(), 1, "the other one");
        assert_eq!(Dhcpv6Message::parse(&[1, 2, 3]).err(), Some(Dhcpv6Error::Truncated));
        let short = [7, 0, 0, 1, 0, 3, 0, 200];
        assert_eq!(Dhcpv6Message::parse(&short).err(), Some(Dhcpv6Error::Option));
    }
}
