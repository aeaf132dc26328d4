//! The client against scripted servers in virtual time, well-behaved and malicious.

use super::*;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);
const IAID: u32 = 7;
const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x50);
const OTHER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x51);
const SERVER: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
const RIVAL: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 9];

/// What a server says, to be bent.
#[derive(Clone)]
struct Given {
    kind: Dhcpv6Type,
    server: Vec<u8>,
    iaid: u32,
    times: (u32, u32),
    /// Addresses with their preferred and valid seconds.
    addresses: Vec<(Ipv6Addr, u32, u32)>,
    ia_status: Option<u16>,
    extra: Vec<(u16, Vec<u8>)>,
}

fn given(kind: Dhcpv6Type) -> Given {
    let dns = "2001:db8::53".parse::<Ipv6Addr>().unwrap().octets().to_vec();
    Given {
        kind,
        server: SERVER.into(),
        iaid: IAID,
        times: (1000, 2000),
        addresses: vec![(OURS, 3000, 4000)],
        ia_status: None,
        extra: vec![(option::DNS, dns), (option::SEARCH, b"\x03lab\x07example\0".to_vec())],
    }
}

const ADVERTISE: Dhcpv6Type = Dhcpv6Type::ADVERTISE;
const REPLY: Dhcpv6Type = Dhcpv6Type::REPLY;

#[derive(Debug, PartialEq)]
enum Said {
    Sent(Dhcpv6Type),
    Verify(Ipv6Addr),
    Bound(Ipv6Addr),
    Ended(Ipv6Addr, LeaseEnd),
    Informed,
}

struct Bench {
    client: Dhcpv6Client,
    random: Randomness,
    now: Instant,
    /// The last message of ours.
    sent: Vec<u8>,
}

impl Bench {
    fn new(seed: u64, wanted: Dhcpv6Wanted) -> Self {
        let mut bench = Self {
            client: Dhcpv6Client::new(MAC),
            random: Randomness::from_number(seed),
            now: Instant::from_nanos(1),
            sent: vec![],
        };
        bench.client.start(wanted, bench.now, &mut bench.random);
        bench
    }

    /// A client that has sent its first Solicit.
    fn soliciting(seed: u64) -> Self {
        let mut bench = Self::new(seed, Dhcpv6Wanted::Address);
        assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
        bench
    }

    fn requesting() -> Self {
        let mut bench = Self::soliciting(3);
        assert_eq!(bench.hear(&given(ADVERTISE)), Ok(()));
        assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::REQUEST)]);
        bench
    }

    fn bound() -> Self {
        let mut bench = Self::requesting();
        assert_eq!(bench.hear(&given(REPLY)), Ok(()));
        assert_eq!(bench.drain(), [Said::Verify(OURS)]);
        bench.client.verified(bench.now);
        assert_eq!(bench.drain(), [Said::Bound(OURS)]);
        bench
    }

    fn drain(&mut self) -> Vec<Said> {
        let mut said = vec![];
        while let Some(event) = self.client.poll(self.now, &mut self.random) {
            said.push(match event {
                Dhcpv6Event::Send(sent) => {
                    self.sent = sent.bytes().to_vec();
                    let message = Dhcpv6Message::parse(&self.sent).unwrap();
                    let duid = [&[0, 3, 0, 1], &MAC.0[..]].concat();
                    assert_eq!(message.options().find(option::CLIENT_ID), Some(&duid[..]));
                    assert!(message.options().find(option::ELAPSED).is_some());
                    Said::Sent(message.kind())
                }
                Dhcpv6Event::Verify(lease) => Said::Verify(lease.addr),
                Dhcpv6Event::Bound(lease) => Said::Bound(lease.addr),
                Dhcpv6Event::Ended(addr, why) => Said::Ended(addr, why),
                Dhcpv6Event::Informed => Said::Informed,
            });
        }
        said
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

    fn message(&self, given: &Given) -> Vec<u8> {
        let mut out = vec![0; 1400];
        let mut writer = Dhcpv6Writer::new(given.kind, self.client.xid, &mut out);
        writer.option(option::CLIENT_ID, &[self.client.duid.bytes()]);
        writer.option(option::SERVER_ID, &[&given.server]);
        let mut ia: Vec<u8> = given.iaid.to_be_bytes().into();
        ia.extend(given.times.0.to_be_bytes());
        ia.extend(given.times.1.to_be_bytes());
        for (addr, preferred, valid) in &given.addresses {
            ia.extend([0, 5, 0, 24]);
            ia.extend(addr.octets());
            ia.extend(preferred.to_be_bytes());
            ia.extend(valid.to_be_bytes());
        }
        if let Some(status) = given.ia_status {
            ia.extend([0, 13, 0, 4]);
            ia.extend(status.to_be_bytes());
            ia.extend(b"no");
        }
        writer.option(option::IA_NA, &[&ia]);
        for (code, value) in &given.extra {
            writer.option(*code, &[value]);
        }
        let len = writer.finish().unwrap();
        out.truncate(len);
        out
    }

    fn hear(&mut self, given: &Given) -> Result<(), Dhcpv6Refused> {
        self.hear_bytes(&self.message(given))
    }

    fn hear_bytes(&mut self, bytes: &[u8]) -> Result<(), Dhcpv6Refused> {
        self.client.input(bytes, self.now, &mut self.random, |addr| {
            addr == "2001:db8::1".parse::<Ipv6Addr>().unwrap()
        })
    }

    fn sent(&self) -> Dhcpv6Message<'_> {
        Dhcpv6Message::parse(&self.sent).unwrap()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn solicit_advertise_request_reply_and_a_check_bring_an_address() {
    let mut bench = Bench::soliciting(1);
    let ia = bench.sent().options().associations().next().unwrap();
    assert_eq!((ia.iaid, ia.addresses().count()), (IAID, 0));
    assert_eq!(bench.sent().options().find(option::REQUEST), Some(&[0, 23, 0, 24, 0, 82][..]));
    assert!(bench.sent().options().find(option::SERVER_ID).is_none());
    let first = bench.client.xid;
    assert_eq!(bench.hear(&given(ADVERTISE)), Ok(()));
    assert_eq!(bench.drain(), [], "other servers may offer, too, until the first timeout");
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::REQUEST)]);
    assert_ne!(bench.client.xid, first);
    assert_eq!(bench.sent().options().find(option::SERVER_ID), Some(&SERVER[..]));
    let asked = bench.sent().options().associations().next().unwrap();
    assert_eq!(asked.addresses().next().unwrap().addr, OURS);
    assert_eq!(bench.hear(&given(REPLY)), Ok(()));
    assert!(bench.client.lease().is_none(), "not before the check");
    assert_eq!(bench.drain(), [Said::Verify(OURS)]);
    bench.client.verified(bench.now);
    assert_eq!(bench.drain(), [Said::Bound(OURS)]);
    let lease = *bench.client.lease().unwrap();
    assert_eq!(lease.valid_until, Some(bench.now + seconds(4000)));
    assert_eq!(lease.preferred_until, Some(bench.now + seconds(3000)));
    assert_eq!(lease.settings.search.iter().collect::<Vec<_>>(), ["lab.example"]);
    assert_eq!(bench.client.settings().unwrap().dns.len(), 1);
    assert!(!bench.client.awaits());
}

#[test]
fn solicits_follow_section_15_for_hours() {
    for seed in 1..20 {
        let mut bench = Bench::new(seed, Dhcpv6Wanted::Address);
        let began = bench.now;
        bench.next();
        assert!(bench.now - began <= seconds(1), "SOL_MAX_DELAY");
        let mut last: Option<Duration> = None;
        for n in 0..20 {
            let before = bench.now;
            assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
            let wait = (bench.now - before).as_secs_f64();
            let (low, high) = match last {
                None => (1.0, 1.1),
                Some(last) if last.as_secs_f64() * 2.1 > 3960.0 => (3240.0, 3960.0),
                Some(last) => (last.as_secs_f64() * 1.9, last.as_secs_f64() * 2.1),
            };
            let at_most = wait <= high + 1e-6 || (3240.0..=3960.0).contains(&wait);
            assert!(wait >= low.min(3240.0) - 1e-6 && at_most, "{n}: {wait} of {low} to {high}");
            assert!(n > 0 || wait > 1.0, "the first is strictly longer");
            last = Some(bench.now - before);
        }
        let elapsed = bench.sent().options().array::<2>(option::ELAPSED).unwrap();
        assert_eq!(u16::from_be_bytes(elapsed), u16::MAX, "it saturates");
    }
}

#[test]
fn a_server_may_slow_solicitations_down_but_only_within_bounds() {
    for (said, most) in [(120_u32, 132), (59, 3960), (86_401, 3960)] {
        let mut bench = Bench::soliciting(5);
        let mut refusal = given(ADVERTISE);
        refusal.ia_status = Some(Dhcpv6Status::NO_ADDRS_AVAIL.0);
        refusal.extra = vec![(option::SOL_MAX_RT, said.to_be_bytes().into())];
        assert_eq!(bench.hear(&refusal), Err(Dhcpv6Refused::Status(2)));
        let mut longest = 0;
        for _ in 0..20 {
            let before = bench.now;
            bench.next();
            longest = longest.max((bench.now - before).as_secs());
        }
        assert!(longest <= most && longest >= most * 4 / 5, "{said}: {longest}");
    }
}

#[test]
fn the_offer_of_the_highest_preference_is_taken_and_255_at_once() {
    let offer = |server: &[u8], preference: u8| Given {
        server: server.into(),
        extra: vec![(option::PREFERENCE, vec![preference])],
        ..given(ADVERTISE)
    };
    let mut bench = Bench::soliciting(1);
    for (server, preference) in [(SERVER, 3), (RIVAL, 7), (SERVER, 7)] {
        assert_eq!(bench.hear(&offer(&server, preference)), Ok(()));
        assert_eq!(bench.drain(), []);
    }
    bench.next();
    assert_eq!(bench.sent().options().find(option::SERVER_ID), Some(&RIVAL[..]));
    let mut bench = Bench::soliciting(1);
    bench.hear(&offer(&RIVAL, 255)).unwrap();
    assert_eq!(bench.drain(), [Said::Sent(Dhcpv6Type::REQUEST)]);
    // After the first timeout, the first offer.
    let mut bench = Bench::soliciting(1);
    bench.next();
    bench.hear(&offer(&SERVER, 0)).unwrap();
    assert_eq!(bench.drain(), [Said::Sent(Dhcpv6Type::REQUEST)]);
}

#[test]
fn ten_requests_without_a_reply_start_anew() {
    let mut bench = Bench::requesting();
    let said = bench.run(seconds(600));
    let requests = said.iter().filter(|s| **s == Said::Sent(Dhcpv6Type::REQUEST)).count();
    assert_eq!(requests, 9, "and the one before");
    assert!(said.contains(&Said::Sent(Dhcpv6Type::SOLICIT)));
}

#[test]
fn a_lease_is_renewed_at_t1_rebound_at_t2_and_over_at_its_end() {
    let mut bench = Bench::bound();
    let granted = bench.now;
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::RENEW)]);
    assert_eq!(bench.now, granted + seconds(1000));
    assert_eq!(bench.sent().options().find(option::SERVER_ID), Some(&SERVER[..]));
    // Its server answers: all times count anew, and nothing is verified again.
    bench.now += seconds(1);
    assert_eq!(bench.hear(&given(REPLY)), Ok(()));
    assert_eq!(bench.drain(), [Said::Bound(OURS)]);
    let granted = bench.now;
    // Then no server answers.
    let said = bench.run(seconds(1999));
    assert!(said.iter().all(|s| *s == Said::Sent(Dhcpv6Type::RENEW)));
    assert!((3..=8).contains(&said.len()), "{}", said.len());
    let mut said = bench.next();
    assert_eq!(
        (said.remove(0), bench.now),
        (Said::Sent(Dhcpv6Type::REBIND), granted + seconds(2000))
    );
    assert!(bench.sent().options().find(option::SERVER_ID).is_none());
    // Another server may extend it.
    let other = Given { server: RIVAL.into(), ..given(REPLY) };
    let mut saved = Bench { client: bench.client.clone(), sent: vec![], ..Bench::bound() };
    (saved.now, saved.random) = (bench.now, Randomness::from_number(4));
    assert_eq!(saved.hear(&other), Ok(()));
    assert_eq!(saved.drain(), [Said::Bound(OURS)]);
    assert_eq!(saved.client.lease().unwrap().server.bytes(), RIVAL);
    let said = bench.run(seconds(1999));
    assert!(said.iter().all(|s| *s == Said::Sent(Dhcpv6Type::REBIND)));
    let said = bench.next();
    assert_eq!(said, [Said::Ended(OURS, LeaseEnd::Expired)]);
    assert_eq!(bench.now, granted + seconds(4000));
    assert!(bench.client.lease().is_none());
    assert!(bench.run(seconds(5)).contains(&Said::Sent(Dhcpv6Type::SOLICIT)));
}

#[test]
fn an_address_that_another_host_uses_is_declined_and_another_one_asked_for() {
    let mut bench = Bench::requesting();
    bench.hear(&given(REPLY)).unwrap();
    bench.drain();
    bench.client.unusable(bench.now, &mut bench.random);
    let declined = [Said::Ended(OURS, LeaseEnd::Unusable), Said::Sent(Dhcpv6Type::DECLINE)];
    assert_eq!(bench.drain(), declined);
    let ia = bench.sent().options().associations().next().unwrap();
    assert_eq!(ia.addresses().next().unwrap().addr, OURS);
    // Without an answer it is sent four times.
    let mut silent = Bench { client: bench.client.clone(), sent: vec![], ..Bench::bound() };
    silent.now = bench.now;
    let said = silent.run(seconds(40));
    assert_eq!(said.iter().filter(|s| **s == Said::Sent(Dhcpv6Type::DECLINE)).count(), 3);
    assert!(said.contains(&Said::Sent(Dhcpv6Type::SOLICIT)));
    // An answer ends it at once.
    bench.hear(&Given { addresses: vec![], ..given(REPLY) }).unwrap();
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
    assert_eq!(bench.sent().options().associations().next().unwrap().addresses().count(), 0);
}

#[test]
fn a_server_takes_an_address_back_or_replaces_it() {
    let back = Given { addresses: vec![(OURS, 0, 0)], ..given(REPLY) };
    let mut bench = Bench::bound();
    bench.next();
    bench.hear(&back).unwrap();
    assert_eq!(bench.drain(), [Said::Ended(OURS, LeaseEnd::TakenBack)]);
    let mut bench = Bench::bound();
    bench.next();
    let replaced = Given { addresses: vec![(OURS, 0, 0), (OTHER, 30, 40)], ..given(REPLY) };
    bench.hear(&replaced).unwrap();
    let said = [Said::Ended(OURS, LeaseEnd::TakenBack), Said::Verify(OTHER)];
    assert_eq!(bench.drain(), said);
    bench.client.verified(bench.now);
    assert_eq!(bench.drain(), [Said::Bound(OTHER)]);
    // A server that has forgotten the binding is asked for the same address.
    let mut bench = Bench::bound();
    bench.next();
    let unknown = Given { ia_status: Some(3), addresses: vec![], ..given(REPLY) };
    bench.hear(&unknown).unwrap();
    assert_eq!(bench.drain(), [Said::Sent(Dhcpv6Type::REQUEST)]);
    bench.hear(&given(REPLY)).unwrap();
    assert_eq!(bench.drain(), [Said::Bound(OURS)], "it stayed in use meanwhile");
    // One that has none left for an offer makes us look again, not at once.
    let mut bench = Bench::requesting();
    let before = bench.now;
    bench.hear(&Given { ia_status: Some(2), addresses: vec![], ..given(REPLY) }).unwrap();
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
    assert!(bench.now - before >= seconds(1));
}

#[test]
fn settings_alone_are_asked_for_and_refreshed_and_an_address_may_follow() {
    let mut bench = Bench::new(8, Dhcpv6Wanted::Settings);
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::INFORMATION_REQUEST)]);
    assert!(bench.sent().options().find(option::IA_NA).is_none());
    let wanted = [0, 23, 0, 24, 0, 83, 0, 32];
    assert_eq!(bench.sent().options().find(option::REQUEST), Some(&wanted[..]));
    let mut reply = given(REPLY);
    reply.extra.push((option::REFRESH_TIME, 5_u32.to_be_bytes().into()));
    bench.hear(&reply).unwrap();
    assert_eq!(bench.drain(), [Said::Informed]);
    assert_eq!(bench.client.settings().unwrap().dns.len(), 1);
    let before = bench.now;
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::INFORMATION_REQUEST)]);
    assert_eq!(bench.now - before, seconds(600), "IRT_MINIMUM");
    // A router says less, or the same: nothing begins anew. It says more: an address is asked for.
    bench.client.start(Dhcpv6Wanted::Settings, bench.now, &mut bench.random);
    assert_eq!(bench.client.state(), Dhcpv6State::Informing);
    bench.client.start(Dhcpv6Wanted::Address, bench.now, &mut bench.random);
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
}

#[test]
fn a_release_leaves_before_the_address_does() {
    let mut bench = Bench::bound();
    bench.client.release(bench.now);
    assert_eq!(bench.drain(), [Said::Sent(Dhcpv6Type::RELEASE)]);
    assert_eq!(bench.sent().options().find(option::SERVER_ID), Some(&SERVER[..]));
    assert_eq!(bench.next(), [Said::Ended(OURS, LeaseEnd::Released)]);
    assert_eq!(bench.client.deadline(), None);
    // Without a lease there is nothing to say.
    let mut bench = Bench::soliciting(1);
    bench.client.release(bench.now);
    assert_eq!((bench.drain(), bench.client.deadline()), (vec![], None));
}

#[test]
fn a_link_that_comes_back_is_solicited_with_the_address_of_before() {
    let mut bench = Bench::bound();
    bench.client.stop();
    assert_eq!((bench.drain(), bench.client.deadline()), (vec![], None));
    bench.client.start(Dhcpv6Wanted::Address, bench.now, &mut bench.random);
    assert_eq!(bench.next(), [Said::Sent(Dhcpv6Type::SOLICIT)]);
    let ia = bench.sent().options().associations().next().unwrap();
    assert_eq!(ia.addresses().next().unwrap().addr, OURS);
}

#[test]
fn what_cannot_be_used_is_refused_and_changes_nothing() {
    let offer = || given(ADVERTISE);
    let with = |addr: &str, preferred, valid| Given {
        addresses: vec![(addr.parse().unwrap(), preferred, valid)],
        ..offer()
    };
    let cases: Vec<(Given, Dhcpv6Refused)> = vec![
        (Given { iaid: 8, ..offer() }, Dhcpv6Refused::NoAddress),
        (Given { addresses: vec![], ..offer() }, Dhcpv6Refused::NoAddress),
        (Given { times: (3, 2), ..offer() }, Dhcpv6Refused::Times),
        (with("2001:db8::7", 30, 20), Dhcpv6Refused::Times),
        (with("2001:db8::7", 5, 9), Dhcpv6Refused::Times),
        (with("2001:db8::1", 30, 40), Dhcpv6Refused::AddressOurs("2001:db8::1".parse().unwrap())),
        (Given { ia_status: Some(2), ..offer() }, Dhcpv6Refused::Status(2)),
        (Given { kind: REPLY, ..offer() }, Dhcpv6Refused::Kind),
        (Given { kind: Dhcpv6Type(10), ..offer() }, Dhcpv6Refused::Kind),
        (Given { server: vec![0; 131], ..offer() }, Dhcpv6Refused::Server),
        (Given { server: vec![], ..offer() }, Dhcpv6Refused::Server),
    ];
    let bad = ["::", "::1", "fe80::5", "ff02::1", "::ffff:10.0.0.1"];
    let impossible =
        bad.map(|addr| (with(addr, 30, 40), Dhcpv6Refused::Address(addr.parse().unwrap())));
    for (given, why) in cases.into_iter().chain(impossible) {
        let mut bench = Bench::soliciting(2);
        assert_eq!(bench.hear(&given), Err(why), "{why}");
        assert!(bench.client.offer.is_none() && bench.client.refused() == (1, Some(why)));
    }
    let mut bench = Bench::soliciting(2);
    let good = bench.message(&offer());
    for (at, why) in
        [(1, Dhcpv6Refused::NotOurs), (3, Dhcpv6Refused::NotOurs), (9, Dhcpv6Refused::NotOurs)]
    {
        let mut other = good.clone();
        other[at] ^= 1;
        assert_eq!(bench.hear_bytes(&other), Err(why), "another transaction or client");
    }
    for len in 0..good.len() {
        assert!(bench.hear_bytes(&good[..len]).is_err() || len > 60, "cut at {len}");
    }
    assert_eq!(bench.hear_bytes(&[2; 2000]), Err(Dhcpv6Refused::TooLong));
    // A reply of another server to our request, and anything when nothing was asked.
    let mut bench = Bench::requesting();
    let other = Given { server: RIVAL.into(), ..given(REPLY) };
    assert_eq!(bench.hear(&other), Err(Dhcpv6Refused::Server));
    let mut bench = Bench::bound();
    assert_eq!(bench.hear(&given(REPLY)), Err(Dhcpv6Refused::Unasked));
}

#[test]
fn no_server_makes_us_send_without_pause() {
    // Times as short as they are accepted, and a refusal of each request: under two messages in a
    // second for an hour.
    let mut bench = Bench::bound();
    let mut short = given(REPLY);
    (short.times, short.addresses) = ((1, 1), vec![(OURS, 10, 10)]);
    let (end, mut sent) = (bench.now + seconds(3600), 0);
    while bench.now < end {
        sent += bench.next().iter().filter(|s| matches!(s, Said::Sent(_))).count();
        let _ = bench.hear(&short);
        bench.drain();
    }
    assert!(sent <= 725, "{sent}");
    let mut bench = Bench::requesting();
    let (end, mut sent) = (bench.now + seconds(3600), 0);
    while bench.now < end {
        let status = Some(Dhcpv6Status::NOT_ON_LINK.0);
        let _ = bench.hear(&Given { ia_status: status, ..given(REPLY) });
        let preferred = vec![(option::PREFERENCE, vec![255])];
        let _ = bench.hear(&Given { extra: preferred, ..given(ADVERTISE) });
        sent += bench.next().iter().filter(|s| matches!(s, Said::Sent(_))).count();
    }
    assert!(sent <= 200, "{sent}");
}
