//! SYN, ACK, reset and the listener's end in every order (row 8: CVE-2026-43198, CVE-2024-50154).
//!
//! A flow belongs to one worker, whose stack is one value that one thread has at a time (`&mut`):
//! two of these never happen at once, so what a model checker would look for in their interleavings
//! is all in their orders, and those are gone through here, every one.

use floodwall_stack::tcp_set::ListenerId;
use floodwall_tests::Rig;
use floodwall_tests::craft::FAMILIES;
use floodwall_tests::tcp::{Heard, TcpClient};
use floodwall_wire::tcp::TcpFlags;
use floodwall_wire::tcp_options::TcpOptionSet;

use crate::{HELLO, accept, client, half_open, server};

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
        // Whatever is left dies with the listener and its timers.
        scene.step(Close);
        assert_eq!(scene.rig.stack.tcp_listeners().count(), 0);
        if scene.accepted == 0 && n % 4 == 0 {
            drop(scene.rig.run_for(core::time::Duration::from_secs(70)));
            assert_eq!(half_open(&scene.rig), 0, "{order:?}");
            assert_eq!(scene.rig.pool.available(), free, "{order:?}: memory is gone");
        }
    }
}
