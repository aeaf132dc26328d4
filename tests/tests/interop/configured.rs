//! `floodwall run` with no address given: a router (`radvd`) and a DHCP or DHCPv6 server
//! (`dnsmasq`) of the link configure it, and when they fall silent all of it expires in time.
//!
//! Both are Debian's, in a host's namespace. Leases and lifetimes are as short as they let them be.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Process, ip};
use crate::instance::{Folder, Instance};
use crate::link::{Kind, MTU, NAME};
use crate::namespace::{inside, is_deep, pause, set, tell, until};
use crate::site::{ETH, Host, Site};

/// How long it may take until all is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// A router's advertisements, each valid for nine seconds.
const ADVERTISEMENTS: &str = "interface eth0 {
    AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 9;
    prefix fd99::/64 {
        AdvOnLink on; AdvAutonomous on; AdvValidLifetime 9; AdvPreferredLifetime 8;
    };
    RDNSS fd77::1 { AdvRDNSSLifetime 9; };
    DNSSL lab.example { AdvDNSSLLifetime 9; };
};
";
/// How long they last after the last one, and what a busy machine adds.
const ADVERTISED: Duration = Duration::from_secs(9 + 6);

/// A host that forwards: 10.77.0.1, fd77::1 and fd99::1.
fn router(site: &Site) -> Host {
    let host = site.host(1);
    host.inside(|| {
        set("net/ipv6/conf/all/forwarding", "1");
        assert!(ip(&format!("addr add fd99::1/64 dev {ETH} nodad")));
        // A place that is only reached through the router.
        assert!(ip("addr add 192.0.2.1/32 dev lo") && ip("addr add 2001:db8::1/128 dev lo"));
    });
    host
}

fn radvd(router: &Host, folder: &Folder) -> Option<Process> {
    let (config, id) = (folder.file("radvd.conf"), folder.file("radvd.pid"));
    std::fs::write(&config, ADVERTISEMENTS).unwrap();
    router.inside(|| Process::start("radvd", &format!("-n -C {config} -p {id} -m stderr"), b""))
}

/// A server with leases of two minutes, its shortest, to be renewed every five seconds.
fn dnsmasq(router: &Host, folder: &Folder) -> Option<Process> {
    let words = format!(
        "--keep-in-foreground --conf-file=/dev/null --no-hosts --no-resolv --bind-interfaces \
         --interface={ETH} --except-interface=lo --port=0 --user=root --pid-file= \
         --dhcp-range=10.77.0.100,10.77.0.120,255.255.255.0,2m --dhcp-authoritative --no-ping \
         --dhcp-option=option:router,10.77.0.1 --dhcp-option=option:dns-server,10.77.0.1 \
         --dhcp-option=option:T1,5 --dhcp-option=option:T2,60 --log-dhcp --log-facility=- \
         --dhcp-leasefile={}",
        folder.file("leases")
    );
    router.inside(|| Process::start("dnsmasq", &words, b""))
}

/// A router that gives addresses by DHCPv6 alone (M flag, a prefix without A), for two minutes.
fn dnsmasq_v6(router: &Host, folder: &Folder) -> Option<Process> {
    let words = format!(
        "--keep-in-foreground --conf-file=/dev/null --no-hosts --no-resolv --bind-interfaces \
         --interface={ETH} --except-interface=lo --port=0 --user=root --pid-file= \
         --enable-ra --ra-param={ETH},4,60 --dhcp-range=fd77::100,fd77::1ff,64,2m \
         --dhcp-option=option6:dns-server,[fd77::53] --dhcp-authoritative \
         --dhcp-option=option6:domain-search,lab.example --log-dhcp --log-facility=- \
         --dhcp-leasefile={}",
        folder.file("leases")
    );
    router.inside(|| Process::start("dnsmasq", &words, b""))
}

/// Our addresses of one family that may be used, but for link-local ones.
fn addresses(stat: &Value, family: &str) -> Vec<IpAddr> {
    let links = stat["network"]["links"].as_array().unwrap().iter();
    let all = links.flat_map(|link| link["addr_info"].as_array().unwrap());
    let these = all.filter(|addr| addr["scope"] == "global");
    let these = these.filter(|addr| addr["family"] == family && addr["tentative"] != true);
    these.map(|addr| addr["local"].as_str().unwrap().parse().unwrap()).collect()
}

/// What a router's advertisements give: an address in its prefix, itself, DNS.
fn has_advertised(stat: &Value) -> bool {
    let prefix: Ipv6Addr = "fd99::".parse().unwrap();
    let in_prefix = |addr: &IpAddr| match addr {
        IpAddr::V6(addr) => addr.segments()[..4] == prefix.segments()[..4],
        IpAddr::V4(_) => false,
    };
    let network = &stat["network"];
    let router = network["routers"].as_array().unwrap().iter().any(|router| {
        router["gateway"].as_str().unwrap().starts_with("fe80::")
            && (1..=9).contains(&router["life_time"].as_u64().unwrap())
    });
    let prefixes = network["prefixes"].as_array().unwrap().iter();
    let dns = network["dns"].to_string();
    addresses(stat, "inet6").iter().any(in_prefix)
        && router
        && prefixes.map(|it| &it["prefix"]).any(|prefix| prefix == "fd99::/64")
        && dns.contains("fd77::1")
        && dns.contains("lab.example")
}

/// None of it.
fn has_forgotten_advertisements(stat: &Value) -> bool {
    let network = &stat["network"];
    let is_empty = |key: &str| network[key].as_array().unwrap().is_empty();
    let dns = network["dns"].to_string();
    addresses(stat, "inet6").is_empty()
        && is_empty("routers")
        && is_empty("prefixes")
        && !dns.contains("fd77::1")
        && !dns.contains("lab.example")
}

/// The lease in force.
fn lease(stat: &Value) -> &Value {
    &stat["network"]["leases"][0]["lease"]
}

/// What a DHCP server gives: an address of its range, a router, DNS.
fn is_leased(stat: &Value) -> bool {
    let lease = lease(stat);
    let in_range =
        |addr: &IpAddr| matches!(addr, IpAddr::V4(addr) if (100..=120).contains(&addr.octets()[3]));
    addresses(stat, "inet").iter().any(in_range)
        && lease["gateways"][0] == "10.77.0.1"
        && lease["server"] == "10.77.0.1"
        && lease["dns"][0] == "10.77.0.1"
        && stat["network"]["dns"].to_string().contains("10.77.0.1")
}

fn answers(host: &Host, from: &str, to: IpAddr) -> bool {
    host.is_answered(&format!("-I {from} {to}"))
}

/// Without an address; `None`, and said so, where this machine cannot.
fn bare(site: &Site, kind: Kind) -> Option<Instance> {
    Instance::start(site, kind, "--service udp-echo:7")
}

/// A router alone: all that it gives is there, serves, and goes in time when it falls silent.
fn by_a_router(kind: Kind) {
    inside(move || {
        let (site, folder) = (Site::new(MTU), Folder::new());
        let router = router(&site);
        let Some(radvd) = radvd(&router, &folder) else { return };
        let Some(instance) = bare(&site, kind) else { return };
        let stat = instance.wait_for(PATIENCE, has_advertised);
        let network = &stat["network"];
        let [routers, prefixes, dns] = ["routers", "prefixes", "dns"].map(|key| &network[key]);
        tell(&format!("by radvd: routers {routers}, prefixes {prefixes}, dns {dns}"));
        let ours = addresses(&stat, "inet6")[0];
        assert!(answers(&router, "fd99::1", ours));
        // Off the link: our answer takes the default route.
        assert!(answers(&router, "2001:db8::1", ours));
        // Each advertisement begins the nine seconds again.
        assert!(!until(Duration::from_secs(10), || !has_advertised(&instance.stat())));
        assert!(answers(&router, "2001:db8::1", ours));
        radvd.kill();
        instance.wait_for(ADVERTISED, has_forgotten_advertisements);
        assert!(!answers(&router, "fd99::1", ours));
        instance.end();
    });
}

#[test]
fn a_router_configures_us_over_tap_and_when_it_falls_silent_all_of_it_goes() {
    by_a_router(Kind::Tap);
}

#[test]
fn a_router_configures_us_over_a_packet_socket_and_when_it_falls_silent_all_of_it_goes() {
    by_a_router(Kind::Packet);
}

/// A router that advertises a zero lifetime is removed at once.
#[test]
fn a_router_that_says_farewell_is_no_default_router_any_more() {
    inside(|| {
        let (site, folder) = (Site::new(MTU), Folder::new());
        let router = router(&site);
        let Some(radvd) = radvd(&router, &folder) else { return };
        let Some(instance) = bare(&site, Kind::Tap) else { return };
        instance.wait_for(PATIENCE, has_advertised);
        radvd.end();
        instance.wait_for(Duration::from_secs(3), |stat| {
            let routers = stat["network"]["routers"].as_array().unwrap();
            routers.iter().all(|router| router["life_time"] == 0)
        });
        instance.end();
    });
}

/// A server alone: address, router and DNS are there, the lease is renewed, and given back at the
/// end.
fn by_a_server(kind: Kind) {
    inside(move || {
        let (site, folder) = (Site::new(MTU), Folder::new());
        let router = router(&site);
        let Some(dnsmasq) = dnsmasq(&router, &folder) else { return };
        let Some(instance) = bare(&site, kind) else { return };
        let stat = instance.wait_for(PATIENCE, is_leased);
        tell(&format!("by dnsmasq: {}", lease(&stat)));
        let ours = addresses(&stat, "inet")[0];
        assert!(answers(&router, "10.77.0.1", ours));
        assert!(answers(&router, "192.0.2.1", ours));
        // Renewed after five seconds.
        let left = |stat: &Value| lease(stat)["valid_life_time"].as_u64().unwrap();
        instance.wait_for(PATIENCE, |stat| left(stat) <= 116);
        instance.wait_for(PATIENCE, |stat| is_leased(stat) && left(stat) >= 118);
        assert!(answers(&router, "10.77.0.1", ours));
        if is_deep() {
            dnsmasq.kill();
            instance.wait_for(Duration::from_secs(130), |stat| {
                addresses(stat, "inet").is_empty()
                    && !stat["network"]["dns"].to_string().contains("10.77.0.1")
            });
            assert!(!answers(&router, "10.77.0.1", ours));
            instance.end();
            return;
        }
        instance.end();
        let is_given_back = || {
            let leases = std::fs::read_to_string(folder.file("leases")).unwrap_or_default();
            !leases.contains(&ours.to_string())
        };
        assert!(until(Duration::from_secs(5), is_given_back), "the lease is not given back");
        let said = dnsmasq.end_by(Signal::TERM).complaint;
        let requests = said.matches("DHCPREQUEST").count();
        assert!(requests >= 2 && said.contains("DHCPRELEASE"), "{said}");
    });
}

#[test]
fn a_dhcp_server_configures_us_over_tap_and_renews_the_lease() {
    by_a_server(Kind::Tap);
}

#[test]
fn a_dhcp_server_configures_us_over_a_packet_socket_and_renews_the_lease() {
    by_a_server(Kind::Packet);
}

/// Whether a DHCPv6 server's address and DNS are there.
fn is_leased_v6(stat: &Value) -> bool {
    let in_range = |addr: &IpAddr| match addr {
        IpAddr::V6(addr) => (0x100..0x200).contains(&(addr.to_bits() - (0xfd77 << 112))),
        IpAddr::V4(_) => false,
    };
    let dns = stat["network"]["dns"].to_string();
    addresses(stat, "inet6").iter().any(in_range)
        && dns.contains("fd77::53")
        && dns.contains("lab.example")
}

/// A router that gives addresses by DHCPv6 alone: address and DNS are there, the lease is renewed
/// (a minute, in deep runs), and given back at the end.
fn by_a_v6_server(kind: Kind) {
    inside(move || {
        let (site, folder) = (Site::new(MTU), Folder::new());
        let router = router(&site);
        let Some(dnsmasq) = dnsmasq_v6(&router, &folder) else { return };
        let Some(instance) = bare(&site, kind) else { return };
        let stat = instance.wait_for(PATIENCE, is_leased_v6);
        tell(&format!("by dnsmasq: {}", stat["network"]["leases"]));
        let ours = addresses(&stat, "inet6")[0];
        assert!(answers(&router, "fd77::1", ours));
        assert!(answers(&router, "2001:db8::1", ours), "by the router");
        if is_deep() {
            pause(Duration::from_secs(125));
            assert!(is_leased_v6(&instance.stat()) && answers(&router, "fd77::1", ours));
        }
        instance.end();
        let is_given_back = || {
            let leases = std::fs::read_to_string(folder.file("leases")).unwrap_or_default();
            !leases.contains(&ours.to_string())
        };
        assert!(until(Duration::from_secs(5), is_given_back), "the lease is not given back");
        let said = dnsmasq.end_by(Signal::TERM).complaint;
        for message in ["DHCPSOLICIT", "DHCPADVERTISE", "DHCPREQUEST", "DHCPREPLY", "DHCPRELEASE"] {
            assert!(said.contains(message), "{message}: {said}");
        }
        assert!(!is_deep() || said.contains("DHCPRENEW"), "{said}");
    });
}

#[test]
fn a_dhcpv6_server_that_a_router_points_to_configures_us_over_tap() {
    by_a_v6_server(Kind::Tap);
}

#[test]
fn a_dhcpv6_server_that_a_router_points_to_configures_us_over_a_packet_socket() {
    by_a_v6_server(Kind::Packet);
}

/// Both at once; then the link goes down and up, and all of it is there again.
#[test]
fn a_router_and_a_dhcp_server_configure_us_and_again_after_the_link_was_down() {
    inside(|| {
        let (site, folder) = (Site::new(MTU), Folder::new());
        let router = router(&site);
        let (Some(_radvd), Some(_dnsmasq)) = (radvd(&router, &folder), dnsmasq(&router, &folder))
        else {
            return;
        };
        let Some(instance) = bare(&site, Kind::Packet) else { return };
        let has_both = |stat: &Value| is_leased(stat) && has_advertised(stat);
        let all_answer = || {
            let stat = instance.wait_for(PATIENCE, has_both);
            let [v4, v6] = ["inet", "inet6"].map(|family| addresses(&stat, family)[0]);
            assert!(answers(&router, "192.0.2.1", v4));
            assert!(answers(&router, "2001:db8::1", v6));
        };
        all_answer();
        assert!(ip(&format!("link set {NAME} down")));
        pause(Duration::from_secs(1));
        assert!(ip(&format!("link set {NAME} up")));
        all_answer();
        instance.end();
    });
}
