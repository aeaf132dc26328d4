//! Few real connections of peers that break every rule of TCP meanwhile: each attack on places,
//! memory and turns, from peers with windows of no byte and of one, with false SACKs, with
//! acknowledgments of what was never sent, and while the clock jumps. Peers of other prefixes
//! connect, an established one goes on, and all memory is back afterwards.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use floodwall_base::{Counter, Family};
use floodwall_tests::craft::FAMILIES;
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::{SackBlock, TcpOptionSet};

use crate::places::{GET, LAST, Play, World, echo, http, source};

const A: TcpFlags = TcpFlags::ACK;
/// Places of the host, and connections of an attack: twice as many.
const PLACES: usize = 128;
const CONNECTIONS: u16 = 2 * PLACES as u16;
const HUGE: &[u8] = b"GET /bytes/100000000000 HTTP/1.1\r\nHost: a\r\n\r\n";
const ENDLESS: &[u8] = b"GET / HTTP/1.1\r\nX: endless";
/// Turns of the service that a newcomer may wait for its answer.
const TURNS: usize = 20;
/// How long connections may be there that none of their peers ends.
const GIVEN_UP: Duration = Duration::from_secs(1200);

/// What a connection of the attacker is for: the rows of `docs/threats.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    NeverCloses,
    NeverAcknowledgesTheEnd,
    Idles,
    TakesLittleOfMuch,
    AsksBackToBack,
    AsksByteByByte,
}

const ATTACKS: [Attack; 6] = [
    Attack::NeverCloses,
    Attack::NeverAcknowledgesTheEnd,
    Attack::Idles,
    Attack::TakesLittleOfMuch,
    Attack::AsksBackToBack,
    Attack::AsksByteByByte,
];

/// How its peer breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Game {
    ZeroWindow,
    OneByteWindow,
    FalseSacks,
    OptimisticAcks,
    ClockJumps,
}

impl Attack {
    fn begin(self, world: &mut World, play: &mut Play) {
        let text = match self {
            Self::NeverCloses | Self::NeverAcknowledgesTheEnd => LAST,
            Self::Idles => return,
            Self::TakesLittleOfMuch => HUGE,
            Self::AsksBackToBack => &GET.repeat(40)[..],
            Self::AsksByteByByte => ENDLESS,
        };
        let pieces = if self == Self::AsksByteByByte { 1 } else { text.len() };
        if self == Self::NeverCloses {
            world.ask(play, text);
            return;
        }
        for piece in text.chunks(pieces) {
            world.say(play, A, piece);
            play.seq = play.seq.wrapping_add(piece.len() as u32);
        }
        world.serve();
    }
}

impl Game {
    fn play(self, world: &mut World, play: &mut Play) {
        let sack = |first: u32, end: u32| {
            let at = |by: u32| play.ack.wrapping_add(by);
            SackBlock { left: at(first), right: at(end) }
        };
        match self {
            Self::ZeroWindow => play.client.window = 0,
            Self::OneByteWindow => play.client.window = 1,
            Self::FalseSacks => {
                // Of what was never sent, of nothing, backwards, twice, and all of what was sent.
                let blocks = [
                    [sack(1 << 30, (1 << 30) + 7), sack(9, 9), sack(50, 5)],
                    [sack(1, 2), sack(1, 2), sack(3, 4)],
                    [sack(1, 1_000_000), sack(u32::MAX, 1), sack(5, 6)],
                ];
                for [a, b, c] in blocks {
                    let sack = [Some(a), Some(b), Some(c), None];
                    world.say_with(play, A, &TcpOptionSet { sack, ..TcpOptionSet::NONE }, &[]);
                }
            }
            Self::OptimisticAcks => {
                let honest = play.ack;
                for ahead in [1460, 14_600, 1 << 20, 1 << 31] {
                    play.ack = honest.wrapping_add(ahead);
                    world.say(play, A, &[]);
                }
                play.ack = honest;
            }
            Self::ClockJumps => {}
        }
        world.say(play, A, &[]);
    }
}

/// Whether a newcomer is answered, in its turn.
fn is_served(world: &mut World, from: IpAddr, port: u16) -> bool {
    let Some(mut newcomer) = world.open(from, port) else { return false };
    let text = if port == 80 { LAST } else { b"a line" };
    if world.ask(&mut newcomer, text).is_some() {
        world.say(&newcomer, A | TcpFlags::FIN, &[]);
        return true;
    }
    (0..TURNS).any(|_| {
        world.wait(Duration::from_millis(1));
        world.heard(&newcomer.client).iter().any(|it| !it.text.is_empty())
    })
}

/// An attack of one prefix, twice as many connections as there are places, beside honest ones.
fn beside(family: Family, attack: Attack, game: Game) {
    let what = format!("{family:?} {attack:?} {game:?}");
    let mut world = World::with(PLACES, vec![http(), echo()]);
    let mut old = world.open(source(family, 9, 1), 7).expect("a place");
    let (mut asked, mut served) = (0, 0);
    for n in 0..CONNECTIONS {
        if let Some(mut play) = world.open(source(family, 1, n % 200), 80) {
            if game == Game::ZeroWindow || game == Game::OneByteWindow {
                game.play(&mut world, &mut play);
            }
            attack.begin(&mut world, &mut play);
            game.play(&mut world, &mut play);
        }
        if n % 16 == 15 {
            asked += 1;
            served += u32::from(is_served(&mut world, source(family, 20 + n / 16, 3), 80));
            assert!(world.ask(&mut old, b"still there").is_some(), "{what}: an old one, at {n}");
        }
        match game {
            Game::ClockJumps if n % 100 == 99 => world.jump(Duration::from_secs(60)),
            _ => world.wait(Duration::from_millis(1)),
        }
    }
    assert_eq!(served, asked, "{what}");
    world.wait(GIVEN_UP);
    let (memory, _) = world.held();
    assert_eq!(memory, 0, "{what}");
}

fn all_attacks_with(game: Game) {
    for family in FAMILIES {
        ATTACKS.into_iter().for_each(|attack| beside(family, attack, game));
    }
}

#[test]
fn attacks_with_windows_of_no_byte_shut_no_other_prefix_out() {
    all_attacks_with(Game::ZeroWindow);
}

#[test]
fn attacks_with_windows_of_one_byte_shut_no_other_prefix_out() {
    all_attacks_with(Game::OneByteWindow);
}

#[test]
fn attacks_with_false_sacks_shut_no_other_prefix_out() {
    all_attacks_with(Game::FalseSacks);
}

#[test]
fn attacks_with_optimistic_acknowledgments_shut_no_other_prefix_out() {
    all_attacks_with(Game::OptimisticAcks);
}

#[test]
fn attacks_while_the_clock_jumps_shut_no_other_prefix_out() {
    all_attacks_with(Game::ClockJumps);
}

/// Every port that an address has, to one service, and all stay.
#[test]
fn all_the_connections_that_one_address_can_make_shut_no_other_prefix_out() {
    for family in FAMILIES {
        let mut world = World::with(8 * PLACES, vec![http(), echo()]);
        let mut old = world.open(source(family, 9, 1), 7).expect("a place");
        for port in 1..=u16::MAX {
            world.open_from(SocketAddr::new(source(family, 1, 1), port), 80);
            if port % 1024 == 1023 {
                let from = source(family, 20 + port / 1024, 3);
                assert!(is_served(&mut world, from, 80), "{family:?}: after {port}");
                assert!(world.ask(&mut old, b"still there").is_some(), "{family:?}: after {port}");
            }
            if port % 8 == 7 {
                world.wait(Duration::from_millis(1));
            }
        }
        assert!(world.count(Counter::FloodwallTcpEvictedIdle) > 0, "{family:?}");
    }
}

/// Evictions go on while a listener with evicted connections closes, and opens again.
#[test]
fn a_listener_that_closes_during_an_attack_harms_no_other_one() {
    for family in FAMILIES {
        let mut world = World::with(PLACES, vec![http(), echo()]);
        let mut old = world.open(source(family, 9, 1), 7).expect("a place");
        let mut listens = true;
        for n in 0..CONNECTIONS {
            let what = format!("{family:?}, after {n}");
            let port = [80, 7][usize::from(n % 2)];
            if let Some(mut play) = world.open(source(family, 1, n % 200), port)
                && port == 80
            {
                Attack::NeverCloses.begin(&mut world, &mut play);
            }
            if n % 50 == 49 {
                listens = !listens;
                world.listen(0, listens);
            }
            if n % 16 == 15 {
                assert!(is_served(&mut world, source(family, 20 + n / 16, 3), 7), "{what}");
                let is_served = is_served(&mut world, source(family, 60 + n / 16, 3), 80);
                assert_eq!(is_served, listens, "{what}");
                assert!(world.ask(&mut old, b"still there").is_some(), "{what}");
            }
            world.wait(Duration::from_millis(1));
        }
        let evicted = [Counter::FloodwallTcpEvictedIdle, Counter::FloodwallTcpEvictedUnowned];
        assert!(evicted.into_iter().any(|of| world.count(of) > 0), "{family:?}");
    }
}
