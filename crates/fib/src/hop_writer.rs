//! `HopWriter`: which routes use which next-hop object, and how the objects change.
//!
//! Called by [`crate::Fib`] alone. Routes with the same next hop share an object without request;
//! one with a number of its own can be replaced under all its routes by one store. Invariants: an
//! object exists while a route or a group counts on it, or its number was given explicitly; a
//! group's members are no groups; what is replaced goes to the caller, which keeps it for a grace
//! period before [`HopWriter::free`]. ECMP groups are resilient: when members or weights change,
//! only those parts of the flows move that must (RFC 2992 explains why others should not).

use std::collections::HashMap;
use std::sync::Arc;

use floodwall_base::{Address, IfIndex, limits};

use crate::error::RouteError;
use crate::hops::{BUCKETS, Hops};
use crate::keyed::Keyed;
use crate::next_hop::{Member, NextHop, NextHopId};

/// What an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Object<A: Address> {
    Hop(NextHop<A>),
    Group(Box<[Member]>),
}

#[derive(Debug)]
struct HopEntry<A: Address> {
    object: Object<A>,
    /// Routes and groups that go through it.
    users: u32,
    /// Whether its number was given explicitly.
    named: bool,
    place: u32,
    /// Of a group, where its members stand.
    block: u32,
}

/// Memory of an object that readers may still look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OldHop {
    Id(u32),
    Place(u32),
    Block(u32),
}

/// The writer's side of the next-hop objects: reference counts, numbers, ECMP groups.
pub(crate) struct HopWriter<A: Address> {
    shared: Arc<Hops>,
    entries: Vec<Option<HopEntry<A>>>,
    by_way: HashMap<NextHop<A>, u32, Keyed>,
    free_ids: Vec<u32>,
    free_places: Vec<u32>,
    free_blocks: Vec<u32>,
    max: usize,
    groups_max: usize,
    groups: usize,
}

impl<A: Address> HopWriter<A> {
    pub(crate) fn new(shared: Arc<Hops>, max: usize, groups_max: usize, keyed: Keyed) -> Self {
        let places = shared.capacity() as u32;
        Self {
            shared,
            entries: (0..=max).map(|_| None).collect(),
            by_way: HashMap::with_hasher(keyed),
            free_ids: (1..=max as u32).collect(),
            free_places: (1..=places).rev().collect(),
            free_blocks: (0..2 * groups_max as u32).rev().collect(),
            max,
            groups_max,
            groups: 0,
        }
    }

    fn entry(&self, id: u32) -> Option<&HopEntry<A>> {
        self.entries.get(id as usize)?.as_ref()
    }

    pub(crate) fn object(&self, id: u32) -> Option<&Object<A>> {
        Some(&self.entry(id)?.object)
    }

    /// How many routes and groups go through an object.
    pub(crate) fn users(&self, id: u32) -> u32 {
        self.entry(id).map_or(0, |entry| entry.users)
    }

    /// Whether its number was given explicitly.
    pub(crate) fn is_named(&self, id: u32) -> bool {
        self.entry(id).is_some_and(|entry| entry.named)
    }

    /// All objects, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NextHopId, &Object<A>, u32, bool)> {
        self.entries.iter().enumerate().filter_map(|(id, entry)| {
            let entry = entry.as_ref()?;
            Some((NextHopId(id as u32), &entry.object, entry.users, entry.named))
        })
    }

    /// Whether packets of this object can leave while the interfaces of `down` carry none.
    pub(crate) fn is_usable(&self, id: u32, down: u64) -> bool {
        match self.object(id) {
            None => false,
            Some(Object::Group(members)) => members.iter().any(|m| self.is_usable(m.id.0, down)),
            Some(Object::Hop(hop)) => {
                !hop.kind.is_unicast() || down.unbounded_shr(u32::from(hop.iface.0)) & 1 == 0
            }
        }
    }

    /// Whether there is a group.
    pub(crate) const fn has_groups(&self) -> bool {
        self.groups > 0
    }

    /// The gateways of the groups' members, some more than once.
    pub(crate) fn group_gateways(&self) -> impl Iterator<Item = (IfIndex, A)> + '_ {
        let members = self.entries.iter().flatten().filter_map(|entry| match &entry.object {
            Object::Group(members) => Some(members),
            Object::Hop(_) => None,
        });
        members.flatten().filter_map(|member| match self.object(member.id.0)? {
            Object::Hop(hop) => Some((hop.iface, hop.gateway?)),
            Object::Group(_) => None,
        })
    }

    /// The gateways of all objects, some more than once.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = (IfIndex, A)> + '_ {
        self.entries.iter().flatten().filter_map(|entry| match &entry.object {
            Object::Hop(hop) => Some((hop.iface, hop.gateway?)),
            Object::Group(_) => None,
        })
    }

    /// Notes whether a gateway answers. Visits all objects.
    pub(crate) fn set_silent(&self, iface: IfIndex, gateway: A, silent: bool) {
        let leads_there = |hop: &NextHop<A>| hop.iface == iface && hop.gateway == Some(gateway);
        for entry in self.entries.iter().flatten() {
            if matches!(&entry.object, Object::Hop(hop) if leads_there(hop)) {
                self.shared.set_silent(entry.place, silent);
            }
        }
    }

    /// The object for one way, counted on once more.
    pub(crate) fn share(&mut self, hop: NextHop<A>) -> Result<u32, RouteError> {
        if let Some(&id) = self.by_way.get(&hop) {
            self.hold(id);
            return Ok(id);
        }
        let id = self.free_id(None)?;
        let place = self.free_places.pop().ok_or(RouteError::Pending)?;
        self.shared.write(place, &hop);
        self.put(
            id,
            HopEntry { object: Object::Hop(hop), users: 1, named: false, place, block: 0 },
        );
        self.by_way.insert(hop, id);
        Ok(id)
    }

    /// A number that is free: `wanted`, or any; the largest for unnamed objects, so that names find
    /// their numbers free.
    fn free_id(&mut self, wanted: Option<u32>) -> Result<u32, RouteError> {
        let at = match wanted {
            None => return self.free_ids.pop().ok_or(RouteError::NextHopsFull(self.max)),
            Some(id) => self.free_ids.iter().position(|free| *free == id),
        };
        match (at, wanted) {
            (Some(at), _) => Ok(self.free_ids.swap_remove(at)),
            (None, Some(id)) if self.entry(id).is_some() => {
                Err(RouteError::NextHopExists(NextHopId(id)))
            }
            _ => Err(RouteError::NextHopsFull(self.max)),
        }
    }

    fn put(&mut self, id: u32, entry: HopEntry<A>) {
        self.shared.show(id, entry.place);
        self.groups += usize::from(matches!(entry.object, Object::Group(_)));
        if let Some(slot) = self.entries.get_mut(id as usize) {
            *slot = Some(entry);
        }
    }

    /// Counts once more on an object.
    pub(crate) fn hold(&mut self, id: u32) {
        if let Some(Some(entry)) = self.entries.get_mut(id as usize) {
            entry.users += 1;
        }
    }

    /// Counts once less on an object; one without references goes to `old`.
    pub(crate) fn release(&mut self, id: u32, old: &mut Vec<OldHop>) {
        let Some(Some(entry)) = self.entries.get_mut(id as usize) else { return };
        entry.users = entry.users.saturating_sub(1);
        if entry.users == 0 && !entry.named {
            self.discard(id, old);
        }
    }

    fn discard(&mut self, id: u32, old: &mut Vec<OldHop>) {
        let Some(entry) = self.entries.get_mut(id as usize).and_then(Option::take) else { return };
        // It stays where it is: a reader that has just found its number may still follow it.
        old.extend([OldHop::Id(id), OldHop::Place(entry.place)]);
        match entry.object {
            Object::Hop(hop) if !entry.named => _ = self.by_way.remove(&hop),
            Object::Hop(_) => {}
            Object::Group(members) => {
                self.groups -= 1;
                old.push(OldHop::Block(entry.block));
                members.iter().for_each(|member| self.release(member.id.0, old));
            }
        }
    }

    /// Lets memory be used again that no reader looks at any more.
    pub(crate) fn free(&mut self, old: OldHop) {
        match old {
            OldHop::Id(id) => self.free_ids.push(id),
            OldHop::Place(place) => self.free_places.push(place),
            OldHop::Block(block) => self.free_blocks.push(block),
        }
    }

    /// An object under a number of its own.
    pub(crate) fn name(&mut self, id: NextHopId, object: Object<A>) -> Result<(), RouteError> {
        self.check(&object)?;
        if self.entry(id.0).is_some() {
            return Err(RouteError::NextHopExists(id));
        }
        let place = *self.free_places.last().ok_or(RouteError::Pending)?;
        if matches!(object, Object::Group(_)) {
            self.check_blocks()?;
        }
        let id = self.free_id(Some(id.0))?;
        self.free_places.pop();
        self.build(id, object, place, true, 0);
        Ok(())
    }

    /// An unnamed ECMP group, counted on once.
    pub(crate) fn group(&mut self, members: Box<[Member]>) -> Result<u32, RouteError> {
        let object = Object::Group(members);
        self.check(&object)?;
        self.check_blocks()?;
        let place = *self.free_places.last().ok_or(RouteError::Pending)?;
        let id = self.free_id(None)?;
        self.free_places.pop();
        self.build(id, object, place, false, 1);
        Ok(id)
    }

    fn check_blocks(&self) -> Result<(), RouteError> {
        match self.free_blocks.is_empty() {
            _ if self.groups >= self.groups_max => Err(RouteError::GroupsFull(self.groups_max)),
            true => Err(RouteError::Pending),
            false => Ok(()),
        }
    }

    /// Builds what was checked.
    fn build(&mut self, id: u32, object: Object<A>, place: u32, named: bool, users: u32) {
        let mut block = 0;
        match &object {
            Object::Hop(hop) => self.shared.write(place, hop),
            Object::Group(members) => {
                block = self.free_blocks.pop().unwrap_or_default();
                members.iter().for_each(|member| self.hold(member.id.0));
                self.spread(block, None, members);
                self.shared.write_group(place, block);
            }
        }
        self.put(id, HopEntry { object, users, named, place, block });
    }

    fn check(&self, object: &Object<A>) -> Result<(), RouteError> {
        let Object::Group(members) = object else { return Ok(()) };
        let max = limits::NEXT_HOP_MEMBERS_MAX;
        let weighs = |member: &Member| (1..=256).contains(&member.weight);
        if members.is_empty() || members.len() > max || !members.iter().all(weighs) {
            return Err(RouteError::Group { max });
        }
        members.iter().try_for_each(|member| match self.object(member.id.0) {
            Some(Object::Hop(_)) => Ok(()),
            Some(Object::Group(_)) => Err(RouteError::Group { max }),
            None => Err(RouteError::NextHopUnknown(member.id)),
        })
    }

    /// Lets an object with a number of its own be another; its routes stay as they are. A hop stays
    /// a hop, and a group a group.
    pub(crate) fn replace(
        &mut self,
        id: NextHopId,
        object: Object<A>,
        old: &mut Vec<OldHop>,
    ) -> Result<(), RouteError> {
        let entry = self.entry(id.0).filter(|entry| entry.named);
        let entry = entry.ok_or(RouteError::NextHopUnknown(id))?;
        self.check(&object)?;
        let was_group = matches!(entry.object, Object::Group(_));
        let (before, block) = (entry.place, entry.block);
        match &object {
            Object::Hop(_) if was_group => {
                return Err(RouteError::Group { max: limits::NEXT_HOP_MEMBERS_MAX });
            }
            Object::Hop(hop) => {
                let place = self.free_places.pop().ok_or(RouteError::Pending)?;
                self.shared.write(place, hop);
                self.shared.show(id.0, place);
                old.push(OldHop::Place(before));
                if let Some(Some(entry)) = self.entries.get_mut(id.0 as usize) {
                    (entry.object, entry.place) = (object, place);
                }
            }
            Object::Group(_) if !was_group => {
                return Err(RouteError::Group { max: limits::NEXT_HOP_MEMBERS_MAX });
            }
            Object::Group(members) => {
                members.iter().for_each(|member| self.hold(member.id.0));
                self.spread(block, Some(block), members);
                let Some(Some(entry)) = self.entries.get_mut(id.0 as usize) else { return Ok(()) };
                let former = core::mem::replace(&mut entry.object, object);
                if let Object::Group(members) = former {
                    members.iter().for_each(|member| self.release(member.id.0, old));
                }
            }
        }
        Ok(())
    }

    /// Takes an object's number away; without references it is removed.
    pub(crate) fn unname(
        &mut self,
        id: NextHopId,
        old: &mut Vec<OldHop>,
    ) -> Result<(), RouteError> {
        let entry = self.entry(id.0).filter(|entry| entry.named);
        match entry.ok_or(RouteError::NextHopUnknown(id))?.users {
            0 => {
                self.discard(id.0, old);
                Ok(())
            }
            users => Err(RouteError::NextHopUsed { id, users }),
        }
    }

    /// Gives each member its share of the parts in `block`. Where members stand there already
    /// (`from`), each keeps what it may keep: only what is too much for one, or has no owner,
    /// moves.
    fn spread(&self, block: u32, from: Option<u32>, members: &[Member]) {
        let mut owed = shares(members);
        let before = |n: usize| from.map_or(0, |from| self.shared.bucket(from, n));
        let mut homeless = Vec::with_capacity(BUCKETS);
        for bucket in 0..BUCKETS {
            let holder = before(bucket);
            let kept = owed.iter_mut().find(|(id, left)| *id == holder && *left > 0);
            match kept {
                Some((_, left)) => *left -= 1,
                None => homeless.push(bucket),
            }
        }
        let mut heirs = owed.iter().flat_map(|(id, left)| core::iter::repeat_n(*id, *left));
        for bucket in homeless {
            let Some(heir) = heirs.next() else { return };
            self.shared.set_bucket(block, bucket, heir);
        }
    }
}

/// How many of the parts each member has: proportional to its weight, at least one, all together
/// [`BUCKETS`].
fn shares(members: &[Member]) -> Vec<(u32, usize)> {
    let sum: usize = members.iter().map(|m| usize::from(m.weight)).sum();
    let spare = BUCKETS - members.len();
    let (mut given, mut weight) = (0, 0);
    let mut all = Vec::with_capacity(members.len());
    for member in members {
        // Rounded along the way, so that the sum is exact.
        weight += usize::from(member.weight);
        let upto = (weight * spare + sum / 2) / sum.max(1);
        all.push((member.id.0, 1 + upto - given));
        given = upto;
    }
    all
}
