//! `_Core`: the methods of `Engine`, `Endpoint`, and every client of a pool or a load.

use std::collections::BTreeMap;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict};

use super::{Address, CutTuple, NativeError, address_in, address_out, cut_in};
use crate::Micros;
use crate::core;
use crate::engine::Engine;
use crate::engine::metrics::counters::Drop;
use crate::engine::retained::replay::Request;
use crate::engine::sessions::bounds::Bounds;
use crate::link_id::LinkId;
use crate::python::values::events::event_out;
use crate::python::values::load::{Load, load_out};
use crate::python::values::messages::Message;
use crate::python::values::publishing::{self, PublishProperties};
use crate::python::values::sessions::SessionStatus;
use crate::rights::{Rights, WriteRights};
use crate::store::mailbox::Health;
use crate::tables::jurisdiction::Grant;
use crate::tables::subscriber::{Overflow, Subscriber};
use crate::tables::zones::Lookup;
use crate::topic::Region;

/// Serialised TRANSFERs of a handover.
type Transfers<'py> = Vec<Bound<'py, PyBytes>>;

#[pyclass(module = "hbroker._native", name = "_Core", subclass, frozen)]
pub struct Core {
    pub(super) core: core::Core,
}

#[pymethods]
impl Core {
    #[pyo3(signature = (limit = 1024))]
    fn poll_events(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<Py<PyAny>>> {
        let events = py.detach(|| self.core.take_events(limit));
        events.into_iter().map(|event| event_out(py, event)).collect()
    }

    #[pyo3(signature = (limit = 1024))]
    fn poll_messages(&self, py: Python<'_>, limit: usize) -> Vec<Message> {
        let messages = py.detach(|| self.core.take_messages(limit));
        let workspace = self.core.workspace();
        messages.into_iter().map(|message| Message::new(py, message, workspace)).collect()
    }

    fn counters(&self, py: Python<'_>) -> BTreeMap<String, u64> {
        py.detach(|| self.core.counters())
    }

    fn take_load(&self, py: Python<'_>) -> Option<Load> {
        py.detach(|| self.core.take_load()).map(|report| load_out(py, report))
    }

    #[pyo3(signature = (address, token = Vec::new()))]
    fn connect(&self, py: Python<'_>, address: Address, token: Vec<u8>) -> PyResult<u64> {
        let address = address_in(&address)?;
        opened(self.on(py, 0, |engine, now| engine.connect(now, address, token)))
    }

    #[pyo3(signature = (session, address, rights = 0))]
    fn adopt(&self, py: Python<'_>, session: u64, address: Address, rights: u64) -> PyResult<u64> {
        let address = address_in(&address)?;
        opened(py.detach(|| self.core.adopt(session, address, rights)))
    }

    fn is_half_open(&self, py: Python<'_>, link: u64) -> bool {
        self.on_link(py, link, |engine, _, link| engine.is_half_open(link))
    }

    fn will_publisher(&self, py: Python<'_>, link: u64) -> u64 {
        self.on_link(py, link, |engine, _, link| engine.will_publisher(link))
    }

    fn prioritise(&self, py: Python<'_>, link: u64) {
        self.on_link(py, link, |engine, _, link| engine.prioritise(link));
    }

    fn peer_of(&self, py: Python<'_>, link: u64) -> Option<Address> {
        self.on_link(py, link, |engine, _, link| engine.peer_of(link)).map(address_out)
    }

    fn certificate<'py>(&self, py: Python<'py>, peer: Address) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let certificate = self.core.certificate(address_in(&peer)?);
        Ok(certificate.map(|bytes| PyBytes::new(py, &bytes)))
    }

    fn has_association(&self, py: Python<'_>, association: u64) -> bool {
        py.detach(|| self.core.has_association(association))
    }

    fn set_rights(
        &self,
        py: Python<'_>,
        association: u64,
        key: u64,
        blocks: Vec<(Vec<String>, bool)>,
        is_empty: bool,
    ) -> PyResult<bool> {
        if key == 0 {
            return Err(NativeError::new_err("0 is no key of rights"));
        }
        let blocks = blocks.into_iter().map(|(filters, retain)| WriteRights { filters, retain }).collect();
        Ok(py.detach(|| self.core.set_rights(association, Rights { key, blocks, is_empty })))
    }

    fn close(&self, py: Python<'_>, link: u64) {
        self.on_link(py, link, |engine, now, link| engine.close(now, link));
    }

    fn send(&self, py: Python<'_>, link: u64, packet: Vec<u8>) -> bool {
        self.on_link(py, link, |engine, _, link| engine.send(link, packet))
    }

    #[pyo3(signature = (address, packet, token = Vec::new(), pad_to = 0, rights = 0))]
    fn send_to(
        &self,
        py: Python<'_>,
        address: Address,
        packet: Vec<u8>,
        token: Vec<u8>,
        pad_to: usize,
        rights: u64,
    ) -> PyResult<()> {
        let address = address_in(&address)?;
        py.detach(|| self.core.send_to(address, &packet, &token, pad_to, rights));
        Ok(())
    }

    fn token_for<'py>(&self, py: Python<'py>, address: Address) -> PyResult<Bound<'py, PyBytes>> {
        let address = address_in(&address)?;
        let token = self.on(py, 0, |engine, now| engine.token_for(now, address));
        Ok(PyBytes::new(py, &token))
    }

    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (subtree, epoch, serving, until_us = None, *, reserved = false, recovering = false))]
    fn grant(
        &self,
        py: Python<'_>,
        subtree: &str,
        epoch: u64,
        serving: bool,
        until_us: Option<Micros>,
        reserved: bool,
        recovering: bool,
    ) {
        let until = until_us.unwrap_or(Micros::MAX);
        let grant = Grant { epoch, serving, reserved, recovering, until };
        self.each(py, |engine| engine.grant(subtree, grant));
    }

    fn revoke(&self, py: Python<'_>, subtree: &str) {
        self.each(py, |engine| engine.revoke(subtree));
    }

    fn cut(&self, py: Python<'_>, cut: CutTuple) -> PyResult<()> {
        let cut = cut_in(cut)?;
        self.each(py, |engine| engine.cut(cut.clone()));
        Ok(())
    }

    fn uncut(&self, py: Python<'_>, subtree: &str) {
        self.each(py, |engine| engine.uncut(subtree));
    }

    #[pyo3(signature = (session, *, persistent, queue_messages = 0, queue_bytes = 0, rights = 0))]
    fn open_session(
        &self,
        py: Python<'_>,
        session: u64,
        persistent: bool,
        queue_messages: usize,
        queue_bytes: usize,
        rights: u64,
    ) -> bool {
        let bounds = Bounds { messages: queue_messages, bytes: queue_bytes };
        py.detach(|| self.core.open_session(session, persistent, bounds, rights))
    }

    fn allow_session(&self, py: Python<'_>, session: u64, rights: u64) {
        py.detach(|| self.core.allow_session(session, rights));
    }

    fn refuse_session(&self, py: Python<'_>, session: u64, client: Address, rights: u64) -> PyResult<()> {
        let client = address_in(&client)?;
        py.detach(|| self.core.refuse_session(session, client, rights));
        Ok(())
    }

    fn restore_queue(&self, py: Python<'_>, session: u64) -> PyResult<usize> {
        py.detach(|| self.core.restore_queue(session)).map_err(PyOSError::new_err)
    }

    fn submit_stored(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.core.submit_stored())
    }

    fn stored(&self) -> u64 {
        self.core.stored()
    }

    #[getter]
    fn store_fault(&self) -> Option<(bool, String)> {
        match self.core.store_health()? {
            Health::Working => None,
            Health::Full(why) => Some((false, why)),
            Health::Failed(why) => Some((true, why)),
        }
    }

    fn take_store_damage(&self) -> Vec<String> {
        self.core.take_store_damage().iter().map(ToString::to_string).collect()
    }

    #[pyo3(signature = (session, reason = "session_ended"))]
    fn end_session(&self, py: Python<'_>, session: u64, reason: &str) -> PyResult<()> {
        let why = match reason {
            "session_ended" => Drop::SessionEnded,
            "session_expired" => Drop::SessionExpired,
            _ => return Err(NativeError::new_err(format!("{reason:?} is no reason for a session to end"))),
        };
        py.detach(|| self.core.end_session(session, why));
        Ok(())
    }

    fn sessions(&self, py: Python<'_>, most: usize) -> Vec<SessionStatus> {
        py.detach(|| self.core.sessions(most)).into_iter().map(SessionStatus::from).collect()
    }

    #[pyo3(signature = (
        session, filter, qos, *, no_local = false, retain_as_published = false, group = "", overflow = 0
    ))]
    #[allow(clippy::too_many_arguments)]
    fn subscribe(
        &self,
        py: Python<'_>,
        session: u64,
        filter: &str,
        qos: u8,
        no_local: bool,
        retain_as_published: bool,
        group: &str,
        overflow: i32,
    ) -> PyResult<bool> {
        check_filter(filter, qos)?;
        let overflow = Overflow::from_wire(overflow);
        let subscriber = |session| Subscriber { session, qos, no_local, retain_as_published, overflow };
        Ok(py.detach(|| self.core.subscribe(session, filter, group, subscriber)))
    }

    #[pyo3(signature = (session, filter, group = ""))]
    fn unsubscribe(&self, py: Python<'_>, session: u64, filter: &str, group: &str) -> bool {
        py.detach(|| self.core.unsubscribe(session, filter, group))
    }

    #[pyo3(signature = (session, filter, qos, listener, subtree = "", first = ""))]
    #[expect(clippy::too_many_arguments, reason = "what may be asked for")]
    fn send_retained(
        &self,
        py: Python<'_>,
        session: u64,
        filter: &str,
        qos: u8,
        listener: u64,
        subtree: &str,
        first: &str,
    ) -> PyResult<bool> {
        check_filter(filter, qos)?;
        let request = Request { filter, qos, listener, subtree, first };
        Ok(py.detach(|| self.core.send_retained(session, request)))
    }

    fn replays(&self, py: Python<'_>, subtree: &str) -> Vec<(u64, String, u8, u64, String)> {
        let mut replays = Vec::new();
        let mut add = |session, request: Request<'_>| {
            let Request { filter, qos, listener, first, .. } = request;
            replays.push((session, filter.to_owned(), qos, listener, first.to_owned()));
        };
        py.detach(|| self.core.replays(subtree, &mut add));
        replays
    }

    fn retained<'py>(
        &self,
        py: Python<'py>,
        subtree: &str,
        excluded: Vec<String>,
    ) -> Vec<Bound<'py, PyBytes>> {
        let messages = py.detach(|| self.core.retained(Region { subtree, excluded: &excluded }));
        messages.iter().map(|message| PyBytes::new(py, message)).collect()
    }

    fn take_retained(&self, py: Python<'_>, messages: Vec<Vec<u8>>) -> usize {
        py.detach(|| self.core.take_retained(&messages))
    }

    fn drop_retained(&self, py: Python<'_>, subtree: &str, excluded: Vec<String>) {
        py.detach(|| self.core.drop_retained(Region { subtree, excluded: &excluded }));
    }

    fn drain_subtree(&self, py: Python<'_>, subtree: &str, excluded: Vec<String>) -> usize {
        py.detach(|| self.core.drain_subtree(Region { subtree, excluded: &excluded }))
    }

    fn raise_barrier(&self, py: Python<'_>, subtree: &str) -> u64 {
        py.detach(|| self.core.raise_barrier(subtree))
    }

    fn has_passed(&self, py: Python<'_>, barrier: u64) -> bool {
        py.detach(|| self.core.has_passed(barrier))
    }

    #[pyo3(signature = (subtree, excluded, before = 0))]
    fn begin_export(&self, py: Python<'_>, subtree: &str, excluded: Vec<String>, before: u64) -> u64 {
        py.detach(|| self.core.begin_export(Region { subtree, excluded: &excluded }, before))
    }

    fn copy_export<'py>(
        &self,
        py: Python<'py>,
        export: u64,
        excluded: Vec<String>,
    ) -> (Transfers<'py>, bool) {
        let (transfers, is_near) = py.detach(|| self.core.copy_export(export, &excluded));
        (transfers_out(py, &transfers), is_near)
    }

    fn has_uncopied(&self, py: Python<'_>, export: u64, excluded: Vec<String>) -> bool {
        py.detach(|| self.core.has_uncopied(export, &excluded))
    }

    fn stop_export(&self, py: Python<'_>, export: u64) -> u64 {
        py.detach(|| self.core.stop_export(export))
    }

    fn finish_export<'py>(&self, py: Python<'py>, export: u64, excluded: Vec<String>) -> Transfers<'py> {
        transfers_out(py, &py.detach(|| self.core.finish_export(export, &excluded)))
    }

    fn begin_import(&self) -> u64 {
        self.core.begin_import()
    }

    fn take_records(&self, held: u64, transfer: &[u8]) -> usize {
        self.core.take_records(held, transfer)
    }

    fn install(&self, py: Python<'_>, held: u64) -> usize {
        py.detach(|| self.core.install(held))
    }

    fn drop_held(&self, py: Python<'_>, held: u64) {
        py.detach(|| self.core.drop_held(held));
    }

    fn publish_raw(&self, py: Python<'_>, publish: Vec<u8>) -> i32 {
        self.on(py, 0, |engine, now| engine.publish_raw(now, &publish))
    }

    fn matching(&self, py: Python<'_>, topic: &str) -> usize {
        self.on(py, 0, |engine, _| engine.matching(topic))
    }

    fn install_zone(
        &self,
        py: Python<'_>,
        scope: &str,
        cuts: Vec<CutTuple>,
        owner: Address,
        token: Vec<u8>,
        ttl_us: u64,
    ) -> PyResult<()> {
        let owner = address_in(&owner)?;
        let cuts = cuts.into_iter().map(cut_in).collect::<PyResult<Vec<_>>>()?;
        self.on(py, 0, |engine, now| engine.install_zone(now, scope, &cuts, owner, token, ttl_us));
        Ok(())
    }

    #[pyo3(signature = (owner = None))]
    fn forget_zones(&self, py: Python<'_>, owner: Option<Address>) -> PyResult<()> {
        let owner = owner.as_ref().map(address_in).transpose()?;
        self.on(py, 0, |engine, _| engine.forget_zones(owner));
        Ok(())
    }

    fn zone(&self, py: Python<'_>, topic: &str) -> Option<(Address, bool)> {
        match self.on(py, 0, |engine, now| engine.zone(now, topic)) {
            Lookup::Owner(owner) => Some((address_out(owner), true)),
            Lookup::Below(node) => Some((address_out(node), false)),
            Lookup::Unknown => None,
        }
    }

    fn reject(&self, py: Python<'_>, topic: &str, reason: i32) {
        self.on(py, 0, |engine, _| engine.reject(topic, reason));
    }

    #[pyo3(signature = (topic, payload, qos = 0, retain = false, **properties))]
    fn publish(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: Bound<'_, PyBytes>,
        qos: u8,
        retain: bool,
        properties: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<u64>> {
        publishing::publish(py, &self.core, topic, payload, &PublishProperties::of(qos, retain, properties)?)
    }

    #[pyo3(signature = (messages, qos = 0, retain = false, **properties))]
    fn publish_many(
        &self,
        py: Python<'_>,
        messages: Vec<(PyBackedStr, Bound<'_, PyBytes>)>,
        qos: u8,
        retain: bool,
        properties: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Vec<u64>> {
        publishing::publish_many(py, &self.core, messages, &PublishProperties::of(qos, retain, properties)?)
    }

    #[pyo3(signature = (subscription, filter, qos, retain_as_published = false, group = ""))]
    fn listen(
        &self,
        py: Python<'_>,
        subscription: u64,
        filter: &str,
        qos: u8,
        retain_as_published: bool,
        group: &str,
    ) -> PyResult<()> {
        check_filter(filter, qos)?;
        self.on(py, 0, |engine, now| {
            engine.listen(now, subscription, (group, filter), qos, retain_as_published);
        });
        Ok(())
    }

    fn handled(&self, py: Python<'_>, messages: Vec<(u64, u64)>) {
        self.on(py, 0, |engine, _| engine.handled(&messages));
    }

    fn give_back(&self, py: Python<'_>, messages: Vec<(u64, u64)>) {
        self.on(py, 0, |engine, now| engine.give_back(now, &messages));
    }

    #[pyo3(signature = (subscription, gives_back = false))]
    fn unlisten(&self, py: Python<'_>, subscription: u64, gives_back: bool) {
        self.on(py, 0, |engine, now| engine.unlisten(now, subscription, gives_back));
    }

    fn set_leaving(&self, py: Python<'_>, is_leaving: bool) {
        self.on(py, 0, |engine, _| engine.set_leaving(is_leaving));
    }
}

impl Core {
    fn on<R: Send>(
        &self,
        py: Python<'_>,
        worker: u8,
        act: impl FnOnce(&mut Engine, Micros) -> R + Send,
    ) -> R {
        py.detach(|| self.core.on(worker, act))
    }

    fn on_link<R: Send>(
        &self,
        py: Python<'_>,
        link: u64,
        act: impl FnOnce(&mut Engine, Micros, LinkId) -> R + Send,
    ) -> R {
        let link = LinkId(link);
        self.on(py, link.worker(), |engine, now| act(engine, now, link))
    }

    fn each(&self, py: Python<'_>, mut act: impl FnMut(&mut Engine) + Send) {
        py.detach(|| self.core.each(|engine, _| act(engine)));
    }
}

fn opened(link: Option<LinkId>) -> PyResult<u64> {
    link.map(|link| link.0).ok_or_else(|| NativeError::new_err("too many links are open"))
}

fn check_filter(filter: &str, qos: u8) -> PyResult<()> {
    if !crate::topic::filter_is_valid(filter) {
        return Err(NativeError::new_err(format!("{filter:?} is not a valid topic filter")));
    }
    if qos > 2 {
        return Err(NativeError::new_err(format!("QoS {qos} is none of 0, 1 and 2")));
    }
    Ok(())
}

fn transfers_out<'py>(py: Python<'py>, transfers: &[Vec<u8>]) -> Transfers<'py> {
    transfers.iter().map(|transfer| PyBytes::new(py, transfer)).collect()
}
