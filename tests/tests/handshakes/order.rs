//! SYN, ACK, reset and the listener's end in every order (row 8: CVE-2026-43198, CVE-2024-50154).
//!
//! A flow belongs to one worker. Its stack is one value that one thread has at a time (`&mut`): two
//! of these never happen at once, so what a model checker would look for in their interleavings is
//! all in their orders, and those are gone through here, every one.

use floodwall_base::Counter;
use floodwall_services::{ServiceKind, TcpService};
use floodwall_stack::Application;
use floodwall_stack::tcp_set::ListenerId;
use floodwall_tests::craft::{self, FAMILIES, PEER};
use floodwall_tests::tcp::{Heard, TcpClient, heard_in};
use floodwall_tests::{Rig, Shards};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::{HELLO, PORT, accept, client, config, half_open, server};

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Step {
    Syn,
    Ack,
    Reset,
    Close,
    Accept,
}

/// Every order of these steps, each once.
fn orders(of: &[Step]) -> Vec<Vec<Step>> {
    if of.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        if of[..at].contains(first) {
            continue;
        }
        let rest: Vec<_> = [&of[..at], &of[at + 1..]].concat();
        all.extend(orders(&rest).into_iter().map(|rest| [vec![*first], rest].concat()));
    }
    all
}

struct Scene {
    rig: Rig,
    listener: Option<ListenerId>,
    client: TcpClient,
    answer: Option<Heard>,
    accepted: usize,
}

impl Scene {
    fn step(&mut self, step: Step) {
        let Self { rig, client, .. } = self;
        match step {
            Step::Syn => {
                let departed = rig.frame(&client.syn());
                let heard = client.hears(&departed);
                self.answer =
                    heard.into_iter().find(|it| it.flags.0 & 2 != 0).or(self.answer.take());
            }
            Step::Ack => {
                if let Some(answer) = &self.answer {
                    rig.frame(&client.ack(answer, HELLO));
                }
            }
            Step::Reset => {
                let seqs = (client.isn.wrapping_add(1), 0);
                rig.frame(&client.frame(seqs, TcpFlags::RST, &TcpOptionSet::NONE, &[]));
            }
            Step::Close => {
                if let Some(listener) = self.listener.take() {
                    rig.sockets(|s| s.tcp_unlisten(listener).unwrap());
                }
            }
            Step::Accept => {
                let accepted = self.listener.and_then(|listener| accept(rig, listener));
                self.accepted += usize::from(accepted.is_some());
            }
        }
    }
}

#[test]
fn in_every_order_there_is_one_child_at_most_and_none_without_proof() {
    use Step::{Accept, Ack, Close, Reset, Syn};
    let orders = orders(&[Syn, Ack, Ack, Reset, Close, Accept]);
    assert_eq!(orders.len(), 360);
    for (n, order) in orders.iter().enumerate() {
        let (rig, listener) = server(4);
        let client = client(9, FAMILIES[n % 2]);
        let mut scene = Scene { rig, listener: Some(listener), client, answer: None, accepted: 0 };
        let free = scene.rig.pool.available();
        for (at, step) in order.iter().enumerate() {
            scene.step(*step);
            let before = &order[..=at];
            let proven = before.contains(&Syn)
                && before.iter().rposition(|s| *s == Ack) > before.iter().position(|s| *s == Syn);
            let counters = scene.rig.stats().counters;
            let opened = counters.of(floodwall_base::Counter::TcpPassiveOpens);
            assert!(opened == 0 || proven, "{order:?}: a child before its proof");
            assert!(opened <= 2 && scene.accepted as u64 <= opened, "{order:?}");
            assert!(half_open(&scene.rig) <= 1 && scene.rig.conservation().holds(), "{order:?}");
        }
        // The rest is removed with the listener and its timers.
        scene.step(Close);
        assert_eq!(scene.rig.stack.tcp_listeners().count(), 0);
        if scene.accepted == 0 && n % 4 == 0 {
            drop(scene.rig.run_for(core::time::Duration::from_secs(70)));
            assert_eq!(half_open(&scene.rig), 0, "{order:?}");
            assert_eq!(scene.rig.pool.available(), free, "{order:?}: memory is gone");
        }
    }
}

/// A client's ACK and its copies, whichever of two workers has it first: the owner of the flow has
/// it, and it makes one child.
#[test]
fn copies_of_a_completing_ack_make_one_child_at_a_host_of_two_workers() {
    const CLIENTS: u32 = 64;
    let echo = || -> Vec<Box<dyn Application>> {
        vec![Box::new(TcpService::new(ServiceKind::Echo, PORT))]
    };
    let mut shards = Shards::new(&config(), 2, echo);
    for family in FAMILIES {
        shards.add_neighbor(craft::addr(family, PEER), craft::mac(PEER));
    }
    shards.run_for(core::time::Duration::from_secs(2), core::time::Duration::from_millis(50));
    let mut owned = [0, 0];
    for n in 0..CLIENTS {
        let it = client(n, FAMILIES[n as usize % 2]);
        owned[usize::from(shards.owner(&it.syn()).0)] += 1;
        shards.arrive(&[it.syn()]);
        let for_it = |shards: &mut Shards| -> Vec<Heard> {
            let departed = shards.departed();
            departed.iter().filter_map(|it| heard_in(it)).filter(|h| h.to == it.from).collect()
        };
        let answers = for_it(&mut shards);
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        let ack = it.ack(answer, HELLO);
        shards.arrive(&[ack.clone(), ack.clone(), ack]);
        let echoes = for_it(&mut shards).iter().filter(|heard| heard.text == HELLO).count();
        assert_eq!(echoes, 1, "client {n}");
    }
    assert!(owned.iter().all(|owned| *owned > CLIENTS / 8), "{owned:?}");
    let opened =
        [0, 1].map(|worker| shards.stats(worker).counters.of(Counter::TcpPassiveOpens) as u32);
    assert_eq!(opened, owned, "each flow's owner has it");
    shards.assert_conserved();
}
