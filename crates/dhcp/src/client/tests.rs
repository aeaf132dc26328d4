//! The client against a scripted server in virtual time, well-behaved and malicious.

use floodwall_base::Prefix;

use super::*;
use crate::LeaseRoute;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

type Options = Vec<(u8, Vec<u8>)>;

/// What an honest server gives: an hour.
fn honest() -> Options {
    vec![
        (option::SERVER_ID, SERVER.octets().into()),
        (option::MASK, vec![255, 255, 255, 0]),
        (option::ROUTERS, SERVER.octets().into()),
        (option::DNS, vec![10, 0, 0, 1, 10, 0, 0, 2]),
        (option::DOMAIN, b"lab.example".into()),
        (option::LEASE_TIME, 3600_u32.to_be_bytes().into()),
    ]
}

/// The valid options with one of them replaced.
fn but(code: u8, value: &[u8]) -> Options {
    let mut options = honest();
    options.retain(|(c, _)| *c != code);
    options.push((code, value.to_vec()));
    options
}

struct Bench {
    client: DhcpClient,
    random: Randomness,
    now: Instant,
}

/// The kind of an event, and the kind and destination of what was sent.
#[derive(Debug, PartialEq)]
enum Said {
    Sent(Dhcpv4Type, Ipv4Addr),
    Verify,
    Bound,
    Ended(LeaseEnd),
}

impl Bench {
    fn new() -> Self {
        let random = Randomness::from_number(9);
        let mut bench = Self { client: DhcpClient::new(MAC), random, now: Instant::from_nanos(1) };
        bench.client.start(bench.now, &mut bench.random);
        bench
    }

    /// A bench with a client that has a lease.
    fn bound() -> Self {
        let mut bench = Self::new();
        bench.next();
        assert_eq!(bench.reply(Dhcpv4Type::OFFER, OURS, &honest()), Ok(()));
        bench.next();
        assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &honest()), Ok(()));
        assert_eq!(bench.drain(), [Said::Verify]);
        bench.now += Duration::from_secs(5);
        bench.client.verified(bench.now);
        assert_eq!(bench.drain(), [Said::Bound]);
        bench
    }

    fn poll(&mut self) -> Option<Said> {
        Some(match self.client.poll(self.now, &mut self.random)? {
            DhcpEvent::Send(sent) => {
                let message = Dhcpv4Message::parse(sent.bytes()).unwrap();
                assert_eq!((message.chaddr(), message.is_reply()), (MAC, false));
                assert_eq!(message.xid(), self.client.xid);
                assert_eq!(message.find(option::CLIENT_ID), Some(&[1, 2, 0, 0, 0, 0, 7][..]));
                assert_eq!(sent.src_addr, message.ciaddr());
                let alone = message.ciaddr().is_unspecified();
                let kind = message.kind().unwrap();
                assert_eq!(message.wants_broadcast(), alone && kind != Dhcpv4Type::DECLINE);
                Said::Sent(kind, sent.dst_addr)
            }
            DhcpEvent::Verify(lease) => {
                assert_eq!(lease.addr, OURS);
                Said::Verify
            }
            DhcpEvent::Bound(_) => Said::Bound,
            DhcpEvent::Ended(addr, why) => {
                assert_eq!(addr, OURS);
                Said::Ended(why)
            }
        })
    }

    fn drain(&mut self) -> Vec<Said> {
        std::iter::from_fn(|| self.poll()).collect()
    }

    /// What the next moment at which something is due brings.
    fn next(&mut self) -> Vec<Said> {
        self.now = self.now.max(self.client.deadline().expect("something is due"));
        self.drain()
    }

    /// All that comes before `length` is over.
    fn run(&mut self, length: Duration) -> Vec<Said> {
        let (end, mut said) = (self.now + length, Vec::new());
        while self.client.deadline().is_some_and(|at| at <= end) {
            said.extend(self.next());
        }
        self.now = end;
        said
    }

    fn message(&self, kind: Dhcpv4Type, yiaddr: Ipv4Addr, options: &Options) -> Vec<u8> {
        let fields = Dhcpv4Fields {
            is_reply: true,
            xid: self.client.xid,
            secs: 0,
            wants_broadcast: true,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr,
            chaddr: MAC,
        };
        let kind = [kind.0];
        let mut all = vec![(option::MESSAGE_TYPE, &kind[..])];
        all.extend(options.iter().map(|(code, value)| (*code, &value[..])));
        let mut out = vec![0; 3000];
        let len = fields.emit_into(&all, &mut out).unwrap();
        out.truncate(len);
        out
    }

    fn input(&mut self, bytes: &[u8]) -> Result<(), LeaseRefused> {
        let taken = |addr| addr == Ipv4Addr::new(10, 0, 0, 99);
        self.client.input(bytes, SERVER, self.now, &mut self.random, taken)
    }

    fn reply(
        &mut self,
        kind: Dhcpv4Type,
        yiaddr: Ipv4Addr,
        options: &Options,
    ) -> Result<(), LeaseRefused> {
        let bytes = self.message(kind, yiaddr, options);
        self.input(&bytes)
    }

    /// What becomes of an offer of these options.
    fn offered(options: &Options) -> Result<Lease, LeaseRefused> {
        let mut bench = Self::new();
        bench.next();
        bench.reply(Dhcpv4Type::OFFER, OURS, options)?;
        Ok(bench.client.lease.unwrap())
    }
}

fn to_all(kind: Dhcpv4Type) -> Said {
    Said::Sent(kind, Ipv4Addr::BROADCAST)
}

#[test]
fn an_honest_server_gives_a_lease_with_all_that_belongs_to_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.next(), [to_all(Dhcpv4Type::DISCOVER)]);
    bench.reply(Dhcpv4Type::OFFER, OURS, &honest()).unwrap();
    assert_eq!(bench.drain(), [to_all(Dhcpv4Type::REQUEST)]);
    bench.reply(Dhcpv4Type::ACK, OURS, &honest()).unwrap();
    assert_eq!(bench.drain(), [Said::Verify]);
    assert_eq!(bench.client.lease(), None, "not in force before it is verified");
    bench.client.verified(bench.now);
    assert_eq!(bench.drain(), [Said::Bound]);
    let lease = bench.client.lease().unwrap();
    assert_eq!((lease.addr, lease.prefix_len, lease.server), (OURS, 24, SERVER));
    let default = LeaseRoute { prefix: Prefix::all(), gateway: Some(SERVER) };
    assert_eq!(lease.routes.iter().collect::<Vec<_>>(), [default]);
    assert_eq!(lease.dns.iter().collect::<Vec<_>>(), [SERVER, Ipv4Addr::new(10, 0, 0, 2)]);
    assert_eq!(lease.search.iter().collect::<Vec<_>>(), ["lab.example"]);
    assert_eq!(lease.expires, Some(lease.asked_at + Duration::from_secs(3600)));
    assert_eq!(lease.renew_at, lease.asked_at + Duration::from_secs(1800));
    assert_eq!(lease.rebind_at, lease.asked_at + Duration::from_secs(3150));
    assert_eq!((lease.left_out.count(), bench.client.refused().0), (0, 0));
}

#[test]
fn without_an_answer_it_asks_at_growing_intervals_for_ever() {
    let mut bench = Bench::new();
    let mut at = Vec::new();
    for _ in 0..9 {
        assert_eq!(bench.next(), [to_all(Dhcpv4Type::DISCOVER)]);
        at.push(bench.now);
    }
    let waits: Vec<_> = at.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
    for (wait, usual) in waits.iter().zip([4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0, 64.0]) {
        assert!((usual - 1.0..=usual + 1.0).contains(wait), "{waits:?}");
    }
    // A server that fell silent after its offer: four requests, then from the start.
    bench.reply(Dhcpv4Type::OFFER, OURS, &honest()).unwrap();
    let said = bench.run(Duration::from_secs(64));
    let requests = said.iter().filter(|s| **s == to_all(Dhcpv4Type::REQUEST)).count();
    assert_eq!((requests, said.last()), (4, Some(&to_all(Dhcpv4Type::DISCOVER))));
}

#[test]
fn a_lease_is_renewed_by_its_server_rebound_by_any_and_ends_in_time() {
    let mut bench = Bench::bound();
    let first = *bench.client.lease().unwrap();
    assert_eq!(bench.next(), [Said::Sent(Dhcpv4Type::REQUEST, SERVER)]);
    assert_eq!((bench.client.state(), bench.now), (DhcpState::Renewing, first.renew_at));
    bench.reply(Dhcpv4Type::ACK, OURS, &honest()).unwrap();
    assert_eq!(bench.drain(), [Said::Bound]);
    let second = *bench.client.lease().unwrap();
    assert_eq!(second.expires, Some(bench.now + Duration::from_secs(3600)));
    // From now on it is silent.
    let said = bench.run(second.expires.unwrap() - bench.now);
    let to_server = said.iter().filter(|s| **s == Said::Sent(Dhcpv4Type::REQUEST, SERVER)).count();
    let rebound = said.iter().filter(|s| **s == to_all(Dhcpv4Type::REQUEST)).count();
    assert!((2..=6).contains(&to_server) && (2..=4).contains(&rebound), "{said:?}");
    assert_eq!(said.last(), Some(&Said::Ended(LeaseEnd::Expired)));
    assert_eq!((bench.client.lease(), bench.client.state()), (None, DhcpState::Init));
    assert_eq!(bench.next(), [to_all(Dhcpv4Type::DISCOVER)]);
}

#[test]
fn another_server_may_rebind_the_lease() {
    let mut bench = Bench::bound();
    let lease = *bench.client.lease().unwrap();
    bench.run(lease.rebind_at - bench.now);
    let other = but(option::SERVER_ID, &[10, 0, 0, 3]);
    bench.reply(Dhcpv4Type::ACK, OURS, &other).unwrap();
    assert_eq!(bench.drain(), [Said::Bound]);
    assert_eq!(bench.client.lease().unwrap().server, Ipv4Addr::new(10, 0, 0, 3));
}

#[test]
fn a_server_that_takes_the_lease_back_ends_it_at_once() {
    let mut bench = Bench::bound();
    bench.next();
    let none = Ipv4Addr::UNSPECIFIED;
    let unknown = but(option::SERVER_ID, &[10, 0, 0, 66]);
    assert_eq!(bench.reply(Dhcpv4Type::NAK, none, &unknown), Err(LeaseRefused::Server));
    bench.reply(Dhcpv4Type::NAK, none, &honest()).unwrap();
    assert_eq!(bench.drain(), [Said::Ended(LeaseEnd::TakenBack)]);
    assert_eq!(bench.client.lease(), None);
}

#[test]
fn an_address_in_use_is_declined_and_not_requested_again_soon() {
    let mut bench = Bench::new();
    bench.next();
    bench.reply(Dhcpv4Type::OFFER, OURS, &honest()).unwrap();
    bench.drain();
    bench.reply(Dhcpv4Type::ACK, OURS, &honest()).unwrap();
    bench.drain();
    bench.client.unusable(bench.now, &mut bench.random);
    let start = bench.now;
    assert_eq!(bench.drain(), [to_all(Dhcpv4Type::DECLINE), Said::Ended(LeaseEnd::Unusable)]);
    assert_eq!(bench.next(), [to_all(Dhcpv4Type::DISCOVER)]);
    assert!(bench.now - start >= DECLINE_WAIT);
}

#[test]
fn an_orderly_end_gives_the_lease_back() {
    let mut bench = Bench::bound();
    bench.client.release(bench.now);
    assert_eq!(bench.drain(), [Said::Sent(Dhcpv4Type::RELEASE, SERVER)]);
    assert_eq!(bench.next(), [Said::Ended(LeaseEnd::Released)]);
    assert_eq!((bench.client.deadline(), bench.client.state()), (None, DhcpState::Stopped));
    let mut without = Bench::new();
    without.client.release(without.now);
    assert_eq!(without.drain(), []);
}

#[test]
fn a_link_that_comes_back_asks_for_the_address_of_before() {
    let mut bench = Bench::bound();
    bench.client.stop();
    assert_eq!(bench.client.deadline(), None);
    bench.now += Duration::from_secs(60);
    bench.client.start(bench.now, &mut bench.random);
    assert_eq!(bench.next(), [to_all(Dhcpv4Type::REQUEST)]);
    assert_eq!(bench.client.state(), DhcpState::Rebooting);
    bench.reply(Dhcpv4Type::ACK, OURS, &honest()).unwrap();
    assert_eq!(bench.drain(), [Said::Verify]);
    // No server knows us there: from the start.
    let mut elsewhere = Bench::bound();
    elsewhere.client.stop();
    elsewhere.client.start(elsewhere.now, &mut elsewhere.random);
    let said = elsewhere.run(Duration::from_secs(20));
    let request = || to_all(Dhcpv4Type::REQUEST);
    assert_eq!(said[..3], [request(), request(), to_all(Dhcpv4Type::DISCOVER)]);
    // The lease has expired: it is not requested.
    let mut late = Bench::bound();
    late.client.stop();
    late.now += Duration::from_secs(3600);
    late.client.start(late.now, &mut late.random);
    assert_eq!(late.next(), [to_all(Dhcpv4Type::DISCOVER)]);
}

#[test]
fn an_answer_to_nothing_or_to_another_client_is_counted_and_changes_nothing() {
    let mut bench = Bench::new();
    let early = bench.message(Dhcpv4Type::OFFER, OURS, &honest());
    assert_eq!(bench.input(&early), Err(LeaseRefused::Unasked));
    bench.next();
    let good = bench.message(Dhcpv4Type::OFFER, OURS, &honest());
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= byte;
        bytes
    };
    for (at, refused) in
        [(4, LeaseRefused::NotOurs), (33, LeaseRefused::NotOurs), (0, LeaseRefused::NotOurs)]
    {
        assert_eq!(bench.input(&with(at, 3)), Err(refused), "byte {at}");
    }
    assert!(matches!(bench.input(&with(236, 1)), Err(LeaseRefused::Malformed(_))));
    assert!(matches!(bench.input(&good[..200]), Err(LeaseRefused::Malformed(_))));
    assert_eq!(bench.input(&[]), Err(LeaseRefused::NotOurs));
    let huge: Options = vec![(43, vec![7; 2000])];
    assert_eq!(bench.reply(Dhcpv4Type::OFFER, OURS, &huge), Err(LeaseRefused::TooLong));
    assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &honest()), Err(LeaseRefused::Kind));
    assert_eq!(bench.reply(Dhcpv4Type::NAK, OURS, &honest()), Err(LeaseRefused::Kind));
    let (count, last) = bench.client.refused();
    assert_eq!((count, last), (10, Some(LeaseRefused::Kind)));
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.input(&good), Ok(()), "and the honest one still serves");
    assert_eq!(bench.input(&good), Err(LeaseRefused::Late), "the second offer does not");
}

#[test]
fn an_offer_that_no_host_could_use_is_refused() {
    let address = |addr: [u8; 4]| {
        let mut bench = Bench::new();
        bench.next();
        bench.reply(Dhcpv4Type::OFFER, addr.into(), &honest()).unwrap_err()
    };
    for bad in
        [[0, 0, 0, 0], [127, 0, 0, 5], [224, 0, 0, 5], [255; 4], [10, 0, 0, 0], [10, 0, 0, 255]]
    {
        assert_eq!(address(bad), LeaseRefused::Address(bad.into()));
    }
    assert_eq!(address([10, 0, 0, 99]), LeaseRefused::AddressOurs([10, 0, 0, 99].into()));
    assert_eq!(address(SERVER.octets()), LeaseRefused::Server);
    for mask in [[0; 4], [128, 0, 0, 0], [255, 0, 255, 0], [254, 0, 0, 0], [0, 0, 0, 1]] {
        assert_eq!(Bench::offered(&but(option::MASK, &mask)), Err(LeaseRefused::Mask(mask.into())));
    }
    for seconds in [0_u32, 1, 9] {
        let options = but(option::LEASE_TIME, &seconds.to_be_bytes());
        assert_eq!(Bench::offered(&options), Err(LeaseRefused::LeaseTime(seconds)));
    }
    assert_eq!(Bench::offered(&but(option::LEASE_TIME, &[1])), Err(LeaseRefused::LeaseTime(0)));
    for server in [&[0, 0, 0, 0][..], &[224, 0, 0, 1], &[10]] {
        assert_eq!(Bench::offered(&but(option::SERVER_ID, server)), Err(LeaseRefused::Server));
    }
}

#[test]
fn what_else_is_nonsense_is_left_out_of_the_lease() {
    let lease = |code, value: &[u8]| Bench::offered(&but(code, value)).unwrap();
    for router in [[10, 0, 1, 1], [224, 0, 0, 1], [0; 4], OURS.octets()] {
        let lease = lease(option::ROUTERS, &router);
        assert_eq!((lease.routes.len(), lease.left_out.count()), (0, 1), "{router:?}");
    }
    let dns = lease(option::DNS, &[127, 0, 0, 1, 8, 8, 8, 8, 255, 255, 255, 255, 9]);
    assert_eq!(dns.dns.iter().collect::<Vec<_>>(), [Ipv4Addr::new(8, 8, 8, 8)]);
    assert_eq!(dns.left_out.count(), 2);
    let many: Vec<u8> = (1..=40).flat_map(|n| [10, 0, 0, n]).collect();
    assert_eq!(lease(option::DNS, &many).dns.len(), 4);
    assert_eq!(lease(option::MTU, &[0, 200]).mtu, None);
    assert_eq!(lease(option::MTU, &[5, 120]).mtu, Some(1400));
    assert!(lease(option::DOMAIN, b"x\nnameserver 6.6.6.6").search.is_empty());
}

/// A host address without neighbours, as clouds give it: its router is put on the link, by the
/// routers' option and by classless routes, before the route through it.
#[test]
fn a_lease_of_one_address_puts_its_router_on_the_link() {
    let outside = [172, 31, 1, 1];
    let near = "172.31.1.1/32 None";
    let default = "0.0.0.0/0 Some(172.31.1.1)";
    let on_link = [&[0][..], &outside, &[32], &outside, &[0; 4]].concat();
    let cases: [(u8, Vec<u8>, &[&str]); 5] = [
        (option::ROUTERS, outside.into(), &[near, default]),
        (option::ROUTES, [&[0][..], &outside].concat(), &[near, default]),
        (option::ROUTES_MICROSOFT, [&[0][..], &outside].concat(), &[near, default]),
        (option::ROUTES, on_link.clone(), &[near, default]),
        (option::ROUTES_MICROSOFT, on_link, &[near, default]),
    ];
    for (code, value, expected) in cases {
        let mut options = but(option::MASK, &[255; 4]);
        options.retain(|(code, _)| *code != option::ROUTERS);
        options.push((code, value));
        let lease = Bench::offered(&options).unwrap();
        assert_eq!(routes(&lease), expected, "option {code}");
        assert_eq!((lease.prefix_len, lease.left_out.count()), (32, 0));
    }
    // Where the lease has neighbours, a router is one of them.
    let lease = Bench::offered(&but(option::ROUTERS, &outside)).unwrap();
    assert_eq!(routes(&lease), [""; 0]);
}

fn routes(lease: &Lease) -> Vec<String> {
    lease.routes.iter().map(|r| format!("{} {:?}", r.prefix, r.gateway)).collect()
}

#[test]
fn microsofts_routes_serve_where_the_others_are_missing_empty_or_broken() {
    let through = |n| vec![0, 10, 0, 0, n];
    for (routes_121, used) in [
        (None, "Some(10.0.0.9)"),
        (Some(vec![]), "Some(10.0.0.9)"),
        (Some(vec![33, 1]), "Some(10.0.0.9)"),
        (Some(through(8)), "Some(10.0.0.8)"),
    ] {
        let mut options = but(option::ROUTES_MICROSOFT, &through(9));
        options.extend(routes_121.clone().map(|list| (option::ROUTES, list)));
        let lease = Bench::offered(&options).unwrap();
        assert_eq!(routes(&lease), [format!("0.0.0.0/0 {used}")], "{routes_121:?}");
    }
    // An empty list is none: the routers serve.
    let lease = Bench::offered(&but(option::ROUTES, &[])).unwrap();
    assert_eq!(routes(&lease), ["0.0.0.0/0 Some(10.0.0.1)"]);
}

#[test]
fn a_server_that_does_not_name_itself_is_the_sender() {
    let mut nameless = honest();
    nameless.retain(|(code, _)| *code != option::SERVER_ID);
    let mut bench = Bench::new();
    bench.next();
    bench.reply(Dhcpv4Type::OFFER, OURS, &nameless).unwrap();
    assert_eq!(bench.client.lease.unwrap().server, SERVER);
    assert_eq!(bench.drain(), [to_all(Dhcpv4Type::REQUEST)]);
    // From another sender it answers no request; named by its server, or from there, it does.
    let other = Ipv4Addr::new(10, 0, 0, 3);
    let ack = bench.message(Dhcpv4Type::ACK, OURS, &nameless);
    let mut client = |from| bench.client.input(&ack, from, bench.now, &mut bench.random, |_| false);
    assert_eq!(client(other), Err(LeaseRefused::Server));
    assert_eq!(client(Ipv4Addr::UNSPECIFIED), Err(LeaseRefused::Server));
    assert_eq!(client(SERVER), Ok(()));
    // A sender without an address is no server.
    let mut bench = Bench::new();
    bench.next();
    let offer = bench.message(Dhcpv4Type::OFFER, OURS, &nameless);
    for from in [Ipv4Addr::UNSPECIFIED, OURS, Ipv4Addr::BROADCAST] {
        let said = bench.client.input(&offer, from, bench.now, &mut bench.random, |_| false);
        assert_eq!(said, Err(LeaseRefused::Server));
    }
}

#[test]
fn an_address_of_a_reserved_block_is_taken_where_a_server_gives_it() {
    let (ours, server) = ([240, 8, 0, 5], [240, 8, 0, 1]);
    let mut options = but(option::SERVER_ID, &server);
    options.retain(|(code, _)| *code != option::ROUTERS && *code != option::DNS);
    options.extend([(option::ROUTERS, server.to_vec()), (option::DNS, server.to_vec())]);
    let mut bench = Bench::new();
    bench.next();
    assert_eq!(bench.reply(Dhcpv4Type::OFFER, ours.into(), &options), Ok(()));
    let lease = bench.client.lease.unwrap();
    assert_eq!(routes(&lease), ["0.0.0.0/0 Some(240.8.0.1)"]);
    assert_eq!(lease.dns.iter().count(), 1);
}

#[test]
fn an_address_of_the_link_local_prefix_is_taken_where_a_server_gives_it() {
    let mut bench = Bench::new();
    bench.next();
    let options = but(option::MASK, &[255, 255, 0, 0]);
    bench.reply(Dhcpv4Type::OFFER, Ipv4Addr::new(169, 254, 1, 2), &options).unwrap();
    assert_eq!(bench.client.lease.unwrap().prefix_len, 16);
}

#[test]
fn an_offer_may_leave_the_time_to_the_acknowledgement() {
    let mut timeless = honest();
    timeless.retain(|(code, _)| *code != option::LEASE_TIME);
    let mut bench = Bench::new();
    bench.next();
    assert_eq!(bench.reply(Dhcpv4Type::OFFER, OURS, &timeless), Ok(()));
    bench.next();
    let refused = Err(LeaseRefused::LeaseTime(0));
    assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &timeless), refused);
    assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &honest()), Ok(()));
}

#[test]
fn what_is_left_out_is_said_in_words() {
    let words = |code, value: &[u8]| {
        let lease = Bench::offered(&but(code, value)).unwrap();
        lease.left_out.iter().map(|what| what.to_string()).collect::<Vec<_>>().join("; ")
    };
    let off_link = "the router 10.0.1.1: it is on no prefix of the lease";
    assert_eq!(words(option::ROUTERS, &[10, 0, 1, 1]), off_link);
    let gateway = "the router 224.0.0.1: no router can have that address";
    assert_eq!(words(option::ROUTERS, &[224, 0, 0, 1]), gateway);
    let world = "the route to 0.0.0.0/0 on the link: no such destination can be there";
    assert_eq!(words(option::ROUTES, &[0, 0, 0, 0, 0, 0, 10, 0, 0, 1]), world);
    assert_eq!(
        words(option::ROUTES, &[24, 10, 9, 9, 203, 0, 113, 1]),
        "the route to 10.9.9.0/24 via 203.0.113.1: it is on no prefix of the lease; option 3, the \
         routers: option 121 replaces it (RFC 3442) and has no default route"
    );
    let unread = "option 121: the list of routes cannot be read";
    assert_eq!(words(option::ROUTES, &[33, 1]), unread);
    assert_eq!(words(option::MTU, &[0, 68]), "the MTU 68: IPv4 needs more");
    let dns = "the name server 127.0.0.1: unusable, or one too many";
    assert_eq!(words(option::DNS, &[127, 0, 0, 1]), dns);
}

#[test]
fn times_that_are_out_of_order_are_replaced_by_the_usual_ones() {
    for (renew, rebind) in [(0_u32, 3000_u32), (3000, 2000), (3500, 3600), (u32::MAX, u32::MAX)] {
        let mut options = but(option::RENEWAL_TIME, &renew.to_be_bytes());
        options.push((option::REBINDING_TIME, rebind.to_be_bytes().into()));
        let lease = Bench::offered(&options).unwrap();
        assert_eq!((lease.renew_at - lease.asked_at).as_secs(), 1800, "{renew} {rebind}");
        assert_eq!((lease.rebind_at - lease.asked_at).as_secs(), 3150, "{renew} {rebind}");
    }
    let for_ever = Bench::offered(&but(option::LEASE_TIME, &[255; 4])).unwrap();
    assert_eq!(for_ever.expires, None);
}

#[test]
fn classless_routes_replace_the_router_and_lead_through_neighbours_only() {
    let list = [
        &[0, 10, 0, 0, 1][..],           // default through the router
        &[24, 10, 9, 9, 10, 0, 0, 2],    // a network through a neighbour
        &[32, 192, 0, 2, 1, 0, 0, 0, 0], // a host on the link
        &[16, 172, 16, 192, 0, 2, 1],    // through that host
        &[24, 10, 8, 8, 203, 0, 113, 1], // no gateway
        &[0, 0, 0, 0, 0],                // the world on the link
        &[4, 224, 10, 0, 0, 1],          // groups
        &[8, 127, 10, 0, 0, 1],          // ourselves
    ]
    .concat();
    let lease = Bench::offered(&but(option::ROUTES, &list)).unwrap();
    let shown: Vec<_> =
        lease.routes.iter().map(|r| format!("{} {:?}", r.prefix, r.gateway)).collect();
    assert_eq!(
        shown,
        [
            "192.0.2.1/32 None",
            "0.0.0.0/0 Some(10.0.0.1)",
            "10.9.9.0/24 Some(10.0.0.2)",
            "172.16.0.0/16 Some(192.0.2.1)",
        ]
    );
    assert_eq!(lease.left_out.count(), 4);
    // A width of 33, or a route cut short: the option is left out, the router serves.
    for bad in [&[33, 1, 2, 3, 4, 5, 10, 0, 0, 1][..], &[24, 10, 9], &[0, 10, 0, 0, 1, 200]] {
        let lease = Bench::offered(&but(option::ROUTES, bad)).unwrap();
        assert_eq!((lease.routes.len(), lease.left_out.count()), (1, 1), "{bad:?}");
    }
    let many: Vec<u8> = (0..40).flat_map(|n| [24, 172, 16, n, 10, 0, 0, 1]).collect();
    let lease = Bench::offered(&but(option::ROUTES, &many)).unwrap();
    // One more: the router, which they replace.
    assert_eq!((lease.routes.len(), lease.left_out.count()), (16, 25));
}

#[test]
fn an_acknowledgement_of_another_address_or_server_is_no_answer() {
    let mut bench = Bench::new();
    bench.next();
    bench.reply(Dhcpv4Type::OFFER, OURS, &honest()).unwrap();
    bench.drain();
    let other = Ipv4Addr::new(10, 0, 0, 51);
    let changed = bench.reply(Dhcpv4Type::ACK, other, &honest());
    assert_eq!(changed, Err(LeaseRefused::AddressChanged(other)));
    let unknown = but(option::SERVER_ID, &[10, 0, 0, 66]);
    assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &unknown), Err(LeaseRefused::Server));
    assert_eq!(bench.reply(Dhcpv4Type::ACK, OURS, &honest()), Ok(()));
}

/// Offers, and refuses every request: an hour of that costs a packet a second at the very most.
#[test]
fn a_server_that_offers_and_refuses_for_ever_is_asked_ever_more_seldom() {
    let mut bench = Bench::new();
    let (end, mut sent) = (bench.now + Duration::from_secs(3600), 0);
    while bench.now < end {
        sent += bench.next().len();
        match bench.client.state() {
            DhcpState::Selecting => {
                bench.reply(Dhcpv4Type::OFFER, OURS, &honest()).unwrap();
            }
            DhcpState::Requesting => {
                bench.reply(Dhcpv4Type::NAK, OURS, &honest()).unwrap();
            }
            _ => {}
        }
    }
    assert!((100..=140).contains(&sent), "{sent} messages in an hour");
}

#[test]
fn every_message_of_ours_has_room_for_all_of_its_options() {
    let bench = Bench::bound();
    for kind in 1..=7 {
        let sent = bench.client.write(Dhcpv4Type(kind), bench.now);
        assert!(sent.bytes().len() >= 300);
        assert_eq!(Dhcpv4Message::parse(sent.bytes()).unwrap().kind(), Some(Dhcpv4Type(kind)));
    }
}

proptest::proptest! {
    #[test]
    fn no_options_bring_it_out_of_step(
        replies in proptest::collection::vec(
            (0_u8..8, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120)), 1..40),
    ) {
        let mut bench = Bench::new();
        for (kind, noise) in replies {
            let _ = bench.next();
            let mut bytes = bench.message(Dhcpv4Type(kind), OURS, &honest());
            let end = bytes.len().min(300);
            bytes.truncate(end - 1);
            bytes.extend(noise);
            let _ = bench.input(&bytes);
            let _ = bench.drain();
            bench.client.verified(bench.now);
            let _ = bench.drain();
            if bench.client.deadline().is_none() {
                break;
            }
        }
    }
}
