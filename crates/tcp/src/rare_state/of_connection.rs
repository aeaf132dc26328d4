//! The connection's side of its rare state: taken, read, and given back.
//!
//! Part of the connection; see [`crate::rare_state`] for the invariant and the bound.

use core::hint::cold_path;

use floodwall_wire::tcp_options::SackBlock;

use super::RareState;
use crate::connection::Connection;
use crate::connection_flags::ConnectionFlags;
use crate::path::PathSize;
use crate::settings::{KeepaliveTimes, TcpSettings};
use crate::state_slab::{NO_STATE, StateSlab};
use crate::user_options::UserOptions;

impl Connection {
    /// Its rare state, which is taken where it has none.
    pub(crate) fn rare<'a>(
        &mut self,
        rare: &'a mut StateSlab<RareState>,
    ) -> Option<&'a mut RareState> {
        if self.rare == NO_STATE {
            self.rare = rare.take(RareState::NONE);
        }
        let state = rare.at_mut(self.rare);
        debug_assert!(state.is_some(), "there is one for each place");
        state
    }

    /// Its rare state, where it has one.
    pub(crate) fn known_rare<'a>(&self, rare: &'a StateSlab<RareState>) -> Option<&'a RareState> {
        if self.rare == NO_STATE { None } else { rare.at(self.rare) }
    }

    /// Gives its rare state back: before the connection is freed.
    pub(crate) fn clear_rare(&mut self, rare: &mut StateSlab<RareState>) {
        if self.rare != NO_STATE {
            rare.give_back(core::mem::replace(&mut self.rare, NO_STATE));
        }
    }

    /// The settings of its program that are not flags.
    #[cold]
    pub(crate) fn user_options(&self, rare: &StateSlab<RareState>) -> UserOptions {
        self.known_rare(rare).map_or(UserOptions::NONE, |state| state.options)
    }

    /// Takes the settings of a program that most connections do not have.
    #[inline]
    pub(crate) fn set_rare(&mut self, rare: &mut StateSlab<RareState>, settings: &TcpSettings) {
        if self.rare != NO_STATE || UserOptions::is_any(settings) {
            cold_path();
            let options = UserOptions::of(settings);
            let Some(state) = self.rare(rare) else { return };
            state.options = options;
            self.flags.set(ConnectionFlags::LIMITS_UNSENT, options.limits_unsent());
            self.flags.set(ConnectionFlags::USER_TIMEOUT, options.user_timeout().is_some());
        }
        if settings.keepalive.is_some() || self.flags.has(ConnectionFlags::KEEPALIVE) {
            cold_path();
            self.set_keepalive(rare, settings.keepalive.map(KeepaliveTimes::of));
        }
    }

    /// Sets whether and how a silent peer is probed.
    pub(crate) fn set_keepalive(
        &mut self,
        rare: &mut StateSlab<RareState>,
        keepalive: Option<KeepaliveTimes>,
    ) {
        if keepalive.is_none() && !self.flags.has(ConnectionFlags::KEEPALIVE) {
            return;
        }
        if let Some(state) = self.rare(rare) {
            state.keepalive = keepalive;
            self.flags.set(ConnectionFlags::KEEPALIVE, keepalive.is_some());
        }
    }

    /// How a silent peer is probed, if it is.
    #[inline(always)]
    pub(crate) fn keepalive(&self, rare: &StateSlab<RareState>) -> Option<KeepaliveTimes> {
        if !self.flags.has(ConnectionFlags::KEEPALIVE) {
            return None;
        }
        cold_path();
        self.known_rare(rare)?.keepalive
    }

    /// Data that was received before is to be reported, in place of what was to be, where SACK is
    /// in use.
    pub(crate) fn keep_duplicate(&mut self, rare: &mut StateSlab<RareState>, block: SackBlock) {
        if !self.agreed.sack {
            return;
        }
        if let Some(state) = self.rare(rare) {
            state.duplicate = block;
            self.flags.set(ConnectionFlags::DUPLICATE, true);
        }
    }

    /// The same, unless something is to be reported already.
    pub(crate) fn keep_first_duplicate(
        &mut self,
        rare: &mut StateSlab<RareState>,
        block: Option<SackBlock>,
    ) {
        if let Some(block) = block
            && !self.flags.has(ConnectionFlags::DUPLICATE)
        {
            self.keep_duplicate(rare, block);
        }
    }

    /// What is to be reported: once (RFC 2883 section 4).
    pub(crate) fn take_duplicate(&mut self, rare: &StateSlab<RareState>) -> Option<SackBlock> {
        let has = self.flags.take(ConnectionFlags::DUPLICATE);
        if has { self.known_rare(rare).map(|state| state.duplicate) } else { None }
    }

    /// All that is known of its path.
    pub(crate) fn path_size(&self, rare: &StateSlab<RareState>) -> PathSize {
        match self.known_rare(rare) {
            Some(state) if self.flags.has(ConnectionFlags::PATH) => state.path.clone(),
            _ => PathSize::new(self.path.mtu, self.path.cap),
        }
    }

    /// That has changed.
    pub(crate) fn keep_path(&mut self, rare: &mut StateSlab<RareState>, path: &PathSize) {
        self.path.mtu = path.mtu();
        let is_plain = *path == PathSize::new(self.path.mtu, self.path.cap);
        if !is_plain {
            let Some(state) = self.rare(rare) else { return };
            state.path = path.clone();
        }
        self.flags.set(ConnectionFlags::PATH, !is_plain);
        self.flags.set(ConnectionFlags::CLEARS_DF, path.clears_df());
    }
}
