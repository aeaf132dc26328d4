//! What can be bound to, connected to or sent to: addresses, and names where there is a resolver.
//!
//! Called by [`UdpSocket`](crate::UdpSocket). Shaped like tokio's trait of the same name. The stack
//! has no name service of its own: a network without a [`Resolver`] refuses names, and the error
//! gives the remedy. Deliberately not here: DNS.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::pin::Pin;
use std::str::FromStr;

/// What a text or value means.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Addrs {
    /// One address.
    One(SocketAddr),
    /// Several, to be tried in order.
    Several(Vec<SocketAddr>),
    /// A name, for a resolver.
    Name {
        /// The host's name.
        host: String,
        /// The port.
        port: u16,
    },
}

/// Types that convert to one or more socket addresses: as tokio's trait, for the same types.
///
/// Addresses and texts of addresses (`"192.0.2.1:53"`, `"[2001:db8::1]:53"`, `"[fe80::1%2]:53"`
/// with the number of an interface) need nothing. Names (`"example.com:53"`) need a [`Resolver`].
pub trait ToSocketAddrs: sealed::Sealed {
    /// What it means. Allocates for lists and names only.
    ///
    /// # Errors
    /// `InvalidInput` where a text is neither an address with its port nor a name with its port.
    fn to_addrs(&self) -> io::Result<Addrs>;
}

mod sealed {
    pub trait Sealed {}
}

/// Where a call to this address leads from a socket bound to `own`: the unspecified address means
/// the own one, and where that is unspecified, too, the loopback's, as on Linux. So a program
/// reaches its own listener by the listener's `local_addr()`.
pub(crate) fn towards(to: SocketAddr, own: IpAddr) -> SocketAddr {
    if !to.ip().to_canonical().is_unspecified() {
        return to;
    }
    let ip = match (to.ip(), own.to_canonical()) {
        (IpAddr::V4(_), IpAddr::V4(own)) if !own.is_unspecified() => own.into(),
        (IpAddr::V4(_), _) => Ipv4Addr::LOCALHOST.into(),
        (IpAddr::V6(any), IpAddr::V4(own)) if any.is_unspecified() && !own.is_unspecified() => {
            own.to_ipv6_mapped().into()
        }
        (IpAddr::V6(any), IpAddr::V6(own)) if any.is_unspecified() && !own.is_unspecified() => {
            own.into()
        }
        (IpAddr::V6(any), _) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        (IpAddr::V6(_), _) => Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
    };
    SocketAddr::new(ip, to.port())
}

macro_rules! addrs {
    ($($of:ty => |$value:ident| $what:expr;)*) => { $(
        impl sealed::Sealed for $of {}
        impl ToSocketAddrs for $of {
            fn to_addrs(&self) -> io::Result<Addrs> {
                let $value = self;
                $what
            }
        }
    )* };
}

addrs! {
    SocketAddr => |addr| Ok(Addrs::One(*addr));
    SocketAddrV4 => |addr| Ok(Addrs::One((*addr).into()));
    SocketAddrV6 => |addr| Ok(Addrs::One((*addr).into()));
    (IpAddr, u16) => |addr| Ok(Addrs::One((*addr).into()));
    (Ipv4Addr, u16) => |addr| Ok(Addrs::One((*addr).into()));
    (Ipv6Addr, u16) => |addr| Ok(Addrs::One((*addr).into()));
    [SocketAddr] => |all| Ok(Addrs::Several(all.to_vec()));
    str => |text| of_text(text);
    String => |text| of_text(text);
    (&str, u16) => |name| Ok(of_name(name.0, name.1));
    (String, u16) => |name| Ok(of_name(&name.0, name.1));
}

impl<T: ToSocketAddrs + ?Sized> sealed::Sealed for &T {}
impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_addrs(&self) -> io::Result<Addrs> {
        (**self).to_addrs()
    }
}

fn of_text(text: &str) -> io::Result<Addrs> {
    if let Ok(addr) = SocketAddr::from_str(text) {
        return Ok(Addrs::One(addr));
    }
    let wrong = || {
        let what = format!(
            "{text:?} names no socket: write an address and a port, as in 192.0.2.1:53 or \
             [2001:db8::1]:53"
        );
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    if host.is_empty() || host.contains([':', '[', ']']) {
        return Err(wrong());
    }
    Ok(of_name(host, port))
}

fn of_name(host: &str, port: u16) -> Addrs {
    match host.parse::<IpAddr>() {
        Ok(ip) => Addrs::One((ip, port).into()),
        Err(_) => Addrs::Name { host: host.to_owned(), port },
    }
}

/// What a [`Resolver`] gives in the end.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'a>>;

/// Resolves names to addresses, for networks with programs that use names.
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of `host`, best first, each with `port`.
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a>;
}

/// The operating system's resolver, which uses the operating system's own network (`getaddrinfo` on
/// a blocking thread of the runtime, as tokio does).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// All addresses that something means, at least one.
pub(crate) async fn resolve(
    what: &impl ToSocketAddrs,
    resolver: Option<&dyn Resolver>,
) -> io::Result<Vec<SocketAddr>> {
    all(what.to_addrs()?, resolver).await
}

async fn all(addrs: Addrs, resolver: Option<&dyn Resolver>) -> io::Result<Vec<SocketAddr>> {
    let found = match (addrs, resolver) {
        (Addrs::One(addr), _) => vec![addr],
        (Addrs::Several(all), _) => all,
        (Addrs::Name { host, port }, Some(resolver)) => resolver.resolve(&host, port).await?,
        (Addrs::Name { host, .. }, None) => {
            let what = format!(
                "{host:?} is a name, and this network has no resolver: give an address, or a \
                 resolver to the builder"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    };
    if found.is_empty() {
        let what = "could not resolve to any address";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(found)
}

/// The first of them.
pub(crate) async fn resolve_first(
    what: &impl ToSocketAddrs,
    resolver: Option<&dyn Resolver>,
) -> io::Result<SocketAddr> {
    match what.to_addrs()? {
        Addrs::One(addr) => Ok(addr),
        several => match all(several, resolver).await?.first() {
            Some(first) => Ok(*first),
            None => Err(io::ErrorKind::InvalidInput.into()),
        },
    }
}

/// Times that a bind waits for what was dropped before it.
pub(crate) const BIND_SETTLES: usize = 3;

/// Whether a bind was refused for a port that may be that of a socket dropped a moment ago.
pub(crate) fn is_taken(error: &io::Error, addr: SocketAddr) -> bool {
    error.kind() == io::ErrorKind::AddrInUse && addr.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<Addrs> {
        text.to_addrs().ok()
    }

    #[test]
    fn texts_of_addresses_need_no_resolver() {
        for text in ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%2]:0"] {
            assert_eq!(one(text), Some(Addrs::One(text.parse().unwrap())), "{text}");
        }
        assert_eq!(one("a.example:7"), Some(Addrs::Name { host: "a.example".to_owned(), port: 7 }));
        let bare = ("2001:db8::1", 9).to_addrs().unwrap();
        assert_eq!(bare, Addrs::One("[2001:db8::1]:9".parse().unwrap()));
    }

    #[test]
    fn a_text_without_a_port_is_refused_with_the_remedy() {
        for text in ["192.0.2.1", "a.example", "", ":7", "a:b:7", "2001:db8::1", "a.example:70000"]
        {
            let error = text.to_addrs().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains("write an address"), "{error}");
        }
    }

    struct Fixed;
    impl Resolver for Fixed {
        fn resolve<'a>(&'a self, host: &'a str, port: u16) -> Resolving<'a> {
            Box::pin(async move {
                if host == "absent" {
                    return Ok(Vec::new());
                }
                Ok(vec![([192, 0, 2, 7], port).into()])
            })
        }
    }

    #[tokio::test]
    async fn names_are_refused_without_a_resolver_and_asked_with_one() {
        let refused = resolve(&"a.example:7", None).await.unwrap_err();
        assert!(refused.to_string().contains("no resolver"), "{refused}");
        let found = resolve(&("a.example", 7), Some(&Fixed)).await.unwrap();
        assert_eq!(found, ["192.0.2.7:7".parse().unwrap()]);
        assert!(resolve(&"absent:7", Some(&Fixed)).await.is_err());
        assert!(resolve(&&[][..], None).await.is_err());
    }
}
