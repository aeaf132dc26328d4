//! The DHCPv4 message: 240 fixed bytes and a list of options, the upper layer of UDP ports 67, 68.
//!
//! Called by `dhcp` (both ways) and its tests. Invariants: a [`Dhcpv4Message`] has its magic
//! cookie, a link address of six bytes, and options that all end within their fields; walking them
//! visits each byte once, for any value of the overload option, because it counts in the options
//! field alone. Read first: RFC 2131 section 2, RFC 2132 sections 2 and 9.3, RFC 3396 (an option
//! given in pieces). Not here: what options mean (`dhcp`).

use core::net::Ipv4Addr;

use floodwall_base::MacAddr;
use thiserror::Error;

use crate::field::{self, BufferTooShort, FieldWriter};

/// The bytes before the options, the cookie included.
pub const FIXED_LEN: usize = 240;
/// The least bytes of a message: what relays of BOOTP's time take (RFC 1542 section 2.1).
pub const MESSAGE_LEN_MIN: usize = 300;
/// The server's UDP port.
pub const SERVER_PORT: u16 = 67;
/// The client's UDP port.
pub const CLIENT_PORT: u16 = 68;
/// The magic cookie, which distinguishes options from BOOTP's vendor area (RFC 2131 section 3).
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Ethernet's number in `htype`.
const HTYPE_ETHERNET: u8 = 1;
const OPTION_PAD: u8 = 0;
const OPTION_END: u8 = 255;

/// Numbers of options (RFC 2132, RFC 3397, RFC 3442).
pub mod option {
    /// Subnet mask.
    pub const MASK: u8 = 1;
    /// Routers, best first.
    pub const ROUTERS: u8 = 3;
    /// Domain name servers, best first.
    pub const DNS: u8 = 6;
    /// Domain name.
    pub const DOMAIN: u8 = 15;
    /// Largest packet of the link.
    pub const MTU: u8 = 26;
    /// Broadcast address.
    pub const BROADCAST: u8 = 28;
    /// Address that the client wants.
    pub const REQUESTED_ADDR: u8 = 50;
    /// Seconds of the lease.
    pub const LEASE_TIME: u8 = 51;
    /// Which of `file` (1) and `sname` (2) hold options, too.
    pub const OVERLOAD: u8 = 52;
    /// Kind of message.
    pub const MESSAGE_TYPE: u8 = 53;
    /// Which server.
    pub const SERVER_ID: u8 = 54;
    /// Options that the client wants.
    pub const PARAMETERS: u8 = 55;
    /// Why, in words.
    pub const MESSAGE: u8 = 56;
    /// Largest message that the client takes.
    pub const MESSAGE_LEN_MAX: u8 = 57;
    /// Seconds until renewal.
    pub const RENEWAL_TIME: u8 = 58;
    /// Seconds until rebinding.
    pub const REBINDING_TIME: u8 = 59;
    /// The identifier of the client.
    pub const CLIENT_ID: u8 = 61;
    /// Domains to search.
    pub const SEARCH: u8 = 119;
    /// Classless static routes.
    pub const ROUTES: u8 = 121;
    /// The same under the number that Microsoft's servers use.
    pub const ROUTES_MICROSOFT: u8 = 249;
}

/// What a message is for (RFC 2132 section 9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv4Type(pub u8);

impl Dhcpv4Type {
    /// The client looks for servers and an address.
    pub const DISCOVER: Self = Self(1);
    /// Here is one.
    pub const OFFER: Self = Self(2);
    /// I take it; or: I keep it.
    pub const REQUEST: Self = Self(3);
    /// The offered address is in use by another host.
    pub const DECLINE: Self = Self(4);
    /// It is yours.
    pub const ACK: Self = Self(5);
    /// It is not.
    pub const NAK: Self = Self(6);
    /// I need it no more.
    pub const RELEASE: Self = Self(7);
}

/// Why bytes are not a DHCPv4 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Dhcpv4Error {
    /// Fewer than 240 bytes.
    #[error("the DHCP message is cut short")]
    Truncated,
    /// Neither a request nor a reply.
    #[error("the DHCP message is neither request nor reply")]
    Op,
    /// Not about an Ethernet station.
    #[error("the DHCP message is not about an Ethernet station")]
    Hardware,
    /// Without the cookie the format of the options is unknown.
    #[error("the DHCP message has no magic cookie")]
    Cookie,
    /// An option reaches beyond its field.
    #[error("a DHCP option reaches beyond its field")]
    Option,
}

/// A checked message.
#[derive(Clone, Copy, Debug)]
pub struct Dhcpv4Message<'a> {
    fixed: &'a [u8; FIXED_LEN],
    options: &'a [u8],
}

impl<'a> Dhcpv4Message<'a> {
    /// Checks a message: the fixed part first, then the walk over all options.
    ///
    /// # Errors
    /// See [`Dhcpv4Error`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Dhcpv4Error> {
        let (fixed, options) = bytes.split_first_chunk().ok_or(Dhcpv4Error::Truncated)?;
        let message = Self { fixed, options };
        if !matches!(fixed[0], 1 | 2) {
            return Err(Dhcpv4Error::Op);
        }
        if fixed[1] != HTYPE_ETHERNET || fixed[2] != 6 {
            return Err(Dhcpv4Error::Hardware);
        }
        if field::bytes::<236, 4, _>(fixed) != MAGIC_COOKIE {
            return Err(Dhcpv4Error::Cookie);
        }
        let mut walk = message.options();
        walk.by_ref().for_each(drop);
        if walk.broken { Err(Dhcpv4Error::Option) } else { Ok(message) }
    }

    /// Whether it comes from a server.
    #[must_use]
    pub const fn is_reply(&self) -> bool {
        self.fixed[0] == 2
    }

    /// The number by which the client matches its answers.
    #[must_use]
    pub fn xid(&self) -> u32 {
        field::long::<4, _>(self.fixed)
    }

    /// The client's address, as far as it has one.
    #[must_use]
    pub fn ciaddr(&self) -> Ipv4Addr {
        field::bytes::<12, 4, _>(self.fixed).into()
    }

    /// The address that the server gives.
    #[must_use]
    pub fn yiaddr(&self) -> Ipv4Addr {
        field::bytes::<16, 4, _>(self.fixed).into()
    }

    /// The client's link address.
    #[must_use]
    pub fn chaddr(&self) -> MacAddr {
        MacAddr(field::bytes::<28, 6, _>(self.fixed))
    }

    /// Whether the client wants answers by broadcast.
    #[must_use]
    pub fn wants_broadcast(&self) -> bool {
        field::word::<10, _>(self.fixed) & 0x8000 != 0
    }

    /// The type of the message, where the option is valid.
    #[must_use]
    pub fn kind(&self) -> Option<Dhcpv4Type> {
        self.array::<1>(option::MESSAGE_TYPE).map(|[kind]| Dhcpv4Type(kind))
    }

    /// Every option with its value: of the options field, then of `file` and `sname` where the
    /// overload option marks them as options (RFC 2131 section 4.1).
    #[must_use]
    pub const fn options(&self) -> Dhcpv4Options<'a> {
        Dhcpv4Options { fixed: self.fixed, rest: self.options, area: 0, overload: 0, broken: false }
    }

    /// The first value of an option.
    #[must_use]
    pub fn find(&self, code: u8) -> Option<&'a [u8]> {
        self.options().find(|(found, _)| *found == code).map(|(_, value)| value)
    }

    /// An option of exactly `N` bytes.
    #[must_use]
    pub fn array<const N: usize>(&self, code: u8) -> Option<[u8; N]> {
        self.find(code).and_then(|value| value.try_into().ok())
    }

    /// An option that is an address.
    #[must_use]
    pub fn addr(&self, code: u8) -> Option<Ipv4Addr> {
        self.array::<4>(code).map(Ipv4Addr::from)
    }

    /// An option that is a number of 32 bits.
    #[must_use]
    pub fn number(&self, code: u8) -> Option<u32> {
        self.array::<4>(code).map(u32::from_be_bytes)
    }

    /// All pieces of an option, joined (RFC 3396); `None` where there is none, or where they do not
    /// fit `out`.
    pub fn join<'b>(&self, code: u8, out: &'b mut [u8]) -> Option<&'b [u8]> {
        let mut len = None;
        for (_, value) in self.options().filter(|(found, _)| *found == code) {
            let from = len.unwrap_or(0);
            let end = from + value.len();
            out.get_mut(from..end)?.copy_from_slice(value);
            len = Some(end);
        }
        out.get(..len?)
    }
}

/// A walk over options.
#[derive(Clone, Debug)]
pub struct Dhcpv4Options<'a> {
    fixed: &'a [u8; FIXED_LEN],
    rest: &'a [u8],
    /// 0: the options field; 1: `file`; 2: `sname`.
    area: u8,
    overload: u8,
    /// An option reached beyond its field.
    broken: bool,
}

impl Dhcpv4Options<'_> {
    /// Goes to the next field that holds options; false where there is none.
    fn next_area(&mut self) -> bool {
        while self.area < 2 {
            self.area += 1;
            if self.overload & self.area != 0 {
                let (start, end) = if self.area == 1 { (108, 236) } else { (44, 108) };
                self.rest = self.fixed.get(start..end).unwrap_or_default();
                return true;
            }
        }
        false
    }
}

impl<'a> Iterator for Dhcpv4Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.rest {
                [] | [OPTION_END, ..] => {
                    self.rest = &[];
                    if !self.next_area() {
                        return None;
                    }
                }
                [OPTION_PAD, rest @ ..] => self.rest = rest,
                [code, len, rest @ ..] if usize::from(*len) <= rest.len() => {
                    let (value, rest) = rest.split_at(usize::from(*len));
                    self.rest = rest;
                    if let (option::OVERLOAD, 0, [which]) = (*code, self.area, value) {
                        self.overload = *which;
                    }
                    return Some((*code, value));
                }
                _ => {
                    self.broken = true;
                    (self.rest, self.area) = (&[], 2);
                    return None;
                }
            }
        }
    }
}

/// The values of a message's fixed part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dhcpv4Fields {
    /// From a server.
    pub is_reply: bool,
    /// The number by which the client matches its answers.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// Whether the client wants answers by broadcast.
    pub wants_broadcast: bool,
    /// The client's address, as far as it has one.
    pub ciaddr: Ipv4Addr,
    /// The address that the server gives.
    pub yiaddr: Ipv4Addr,
    /// The client's link address.
    pub chaddr: MacAddr,
}

impl Dhcpv4Fields {
    /// Writes the message with these options, padded to [`MESSAGE_LEN_MIN`]; returns its length.
    ///
    /// # Errors
    /// `out` is too short.
    pub fn emit_into(
        &self,
        options: &[(u8, &[u8])],
        out: &mut [u8],
    ) -> Result<usize, BufferTooShort> {
        let mut fixed = [0; FIXED_LEN];
        field::put::<0, 4, _>(&mut fixed, [u8::from(self.is_reply) + 1, HTYPE_ETHERNET, 6, 0]);
        field::put_long::<4, _>(&mut fixed, self.xid);
        field::put_word::<8, _>(&mut fixed, self.secs);
        field::put_word::<10, _>(&mut fixed, u16::from(self.wants_broadcast) << 15);
        field::put::<12, 4, _>(&mut fixed, self.ciaddr.octets());
        field::put::<16, 4, _>(&mut fixed, self.yiaddr.octets());
        field::put::<28, 6, _>(&mut fixed, self.chaddr.0);
        field::put::<236, 4, _>(&mut fixed, MAGIC_COOKIE);
        let mut writer = FieldWriter::new(out);
        writer.put(&fixed);
        for (code, value) in options {
            // Longer ones go in pieces (RFC 3396 section 6).
            for piece in value.chunks(usize::from(u8::MAX)) {
                writer.put(&[*code, piece.len() as u8]);
                writer.put(piece);
            }
        }
        writer.put(&[OPTION_END]);
        while writer.len() < MESSAGE_LEN_MIN {
            writer.put(&[OPTION_PAD]);
        }
        writer.finish()
    }
}
