//! A session whose messages move to another owner (§5.4): they are copied while it is served, and then taken out of it.

use std::collections::{BTreeSet, VecDeque};

use crate::Micros;
use crate::engine::handover::copied::{Copied, Step};
use crate::engine::handover::moving::Moving;
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::message::{Consignment, Parcel};
use crate::engine::sessions::queue::Lot;
use crate::engine::sessions::session::{Left, Session};
use crate::engine::transport::delivery_records::Tickets;
use crate::topic::Region;

impl Session {
    /// Copies what it has of a region's messages, in steps: `true`, nothing is left but what publishers wait for. Those are the newest, and
    /// no more is copied behind the first of them.
    pub fn copy(&mut self, export: u64, region: Region<'_>, step: &mut Step) -> bool {
        let is_known = self.notes.iter().any(|notes| notes.copied.iter().any(|copied| copied.is_of(export)));
        if !is_known && self.is_idle() {
            return true;
        }
        let oldest = self.oldest();
        let Self { id, key, queue, in_flight, accounts, notes, .. } = self;
        let copied = Copied::among(&mut notes.get_or_insert_default().copied, export);
        step.gone.extend(copied.take_gone(key.0, oldest));
        let next = copied.next();
        let is_waited_for =
            |flying: &Consignment| flying.parcel.number >= next && flying.parcel.ticket.is_some();
        if next > accounts.accepted
            || in_flight.iter().next().is_some_and(|(flying, _)| is_waited_for(flying))
        {
            return true;
        }
        let newer = in_flight
            .iter()
            .rev()
            .take_while(|(flying, _)| flying.parcel.number + u64::from(flying.count) > next);
        let newer: Vec<_> = newer.collect();
        let flying = newer.into_iter().rev().flat_map(|(flying, open)| flying.clone().into_parcels(open));
        let flying = flying.filter(|parcel| parcel.number >= next);
        let mut offer = |parcel: &Parcel| {
            if parcel.ticket.is_some() || step.is_full() {
                return false;
            }
            let is_its = parcel.is_of(region);
            copied.pass(parcel.number, is_its);
            step.examined(is_its.then_some((key.0, *id, parcel)));
            true
        };
        let is_over =
            flying.into_iter().all(|parcel| offer(&parcel)) && queue.beginning_with(next).all(offer);
        is_over || !step.is_full()
    }

    /// Copies of before are void: the region is another one.
    pub fn copy_anew(&mut self, export: u64) {
        self.copied().filter(|copied| copied.is_of(export)).for_each(Copied::begin_again);
    }

    /// For which exports it was copied.
    pub fn exports(&self) -> impl Iterator<Item = u64> {
        let copied = self.notes.iter().flat_map(|notes| &notes.copied);
        copied.filter(|copied| copied.has_some()).map(Copied::export)
    }

    /// Nothing moves after all.
    pub fn stop_copying(&mut self, export: u64) {
        if let Some(notes) = &mut self.notes {
            notes.copied.retain(|copied| !copied.is_of(export));
        }
    }

    /// Takes what it has of a region's messages out of it, in order, tickets and all: those in flight, then those that wait. Where all that
    /// waits is the region's, this costs only what was not copied yet. What a refused publisher sends again is dropped, unless it would come
    /// behind one of its topic that moves.
    pub fn leave(&mut self, export: u64, region: Region<'_>, released: &mut Tickets) -> Option<Left> {
        if self.is_idle() && self.notes.is_none() {
            return None;
        }
        let oldest = self.oldest();
        let mut copied = Copied::take_from(&mut self.notes.get_or_insert_default().copied, export);
        let gone = copied.take_gone(self.key.0, oldest);
        let flying = self.in_flight.extract(|flying| flying.parcel.is_of(region));
        let flying = flying.into_iter().flat_map(|(flying, open)| flying.into_parcels(open));
        let flying: Vec<Parcel> = flying.collect();
        flying.iter().for_each(|parcel| self.credit.settle(parcel.field.len()));
        let is_whole = !copied.has_others()
            && self.queue.beginning_with(copied.next()).all(|parcel| parcel.is_of(region));
        let mut lot = if is_whole {
            self.queue.take_all()
        } else {
            self.queue.extract_lot(|parcel| parcel.is_of(region))
        };
        flying.into_iter().rev().for_each(|parcel| lot.push_first(parcel));
        let (taken, behind) = (lot.parcels.len(), lot.split_off(copied.next()));
        let copies = lot.parcels.len();
        self.tickets -= behind.iter().filter(|parcel| parcel.ticket.is_some()).count();
        released.extend(behind.iter().filter_map(|parcel| parcel.ticket));
        with_those_before(behind).into_iter().for_each(|parcel| lot.push(Parcel { ticket: None, ..parcel }));
        self.accounts.drop(Drop::Moved, taken as u64);
        if self.is_idle() {
            self.rest();
        }
        Some(Left { taken, gone, moving: Moving::of_session(self.key.0, self.id, lot, copies) })
    }

    /// Takes over what waited for it elsewhere.
    pub fn take_in(&mut self, now: Micros, mut lot: Lot) {
        if self.is_idle() {
            self.begin(now);
        }
        let next = self.accounts.accepted + 1;
        (next..).zip(&mut lot.parcels).for_each(|(number, parcel)| parcel.number = number);
        self.accounts.accepted += lot.parcels.len() as u64;
        self.queue.append(lot);
    }
}

/// The messages without a ticket, and of each topic those before the last such.
fn with_those_before(moving: VecDeque<Parcel>) -> Vec<Parcel> {
    let mut topics = BTreeSet::new();
    let is_kept = |parcel: &Parcel| {
        if parcel.ticket.is_none() {
            topics.insert(parcel.chain);
        }
        topics.contains(&parcel.chain)
    };
    let mut kept: Vec<Parcel> = moving.into_iter().rev().filter(is_kept).collect();
    kept.reverse();
    kept
}
