//! A message for the application. Topic and payload are converted at once. The other fields are read from the
//! message's bytes when they are asked for.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::engine::transport::event;
use crate::workspace::Workspace;

#[pyclass(module = "hbroker._native", frozen)]
pub struct Message {
    #[pyo3(get)]
    topic: Py<PyString>,
    #[pyo3(get)]
    payload: Py<PyBytes>,
    message: event::Message,
}

impl Message {
    /// `workspace`: whose names the application uses.
    pub fn new(py: Python<'_>, message: event::Message, workspace: &Workspace) -> Self {
        let topic = message.view().topic;
        let topic = PyString::new(py, workspace.local(topic).unwrap_or(topic)).unbind();
        let payload = message.whole.as_deref().unwrap_or(message.view().payload);
        let payload = PyBytes::new(py, payload).unbind();
        // From here on Python has the payload.
        Self { topic, payload, message: event::Message { whole: None, ..message } }
    }
}

#[pymethods]
impl Message {
    #[getter]
    fn qos(&self) -> u8 {
        self.message.qos
    }

    #[getter]
    fn retain(&self) -> bool {
        self.message.retain
    }

    #[getter]
    fn retained(&self) -> bool {
        self.message.is_retained()
    }

    #[getter]
    fn publisher(&self) -> u64 {
        self.message.view().publisher
    }

    #[getter]
    fn sequence(&self) -> u64 {
        self.message.id(&self.message.view()).1
    }

    #[getter]
    fn copy_id(&self) -> (u64, u64) {
        self.message.copy_id(&self.message.view())
    }

    #[getter]
    fn published_at_us(&self) -> u64 {
        self.message.view().published_at_us
    }

    #[getter]
    fn expiry_s(&self) -> Option<u32> {
        self.message.view().expiry_s
    }

    #[getter]
    fn content_type(&self) -> &str {
        self.message.view().properties().content_type
    }

    #[getter]
    fn payload_format(&self) -> Option<i32> {
        self.message.view().properties().payload_format
    }

    #[getter]
    fn response_topic(&self) -> &str {
        self.message.view().properties().response_topic
    }

    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message.view().properties().correlation_data)
    }

    #[getter]
    fn user_properties(&self) -> Vec<(&str, &str)> {
        self.message.view().user_properties().collect()
    }

    #[getter]
    fn origin(&self) -> u64 {
        self.message.view().origin
    }

    #[getter]
    fn subscriptions(&self) -> Vec<u64> {
        self.message.subscriptions.to_vec()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let bytes = self.payload.bind(py).as_any().len().unwrap_or(0);
        format!(
            "Message(topic={:?}, {bytes} bytes, qos={})",
            self.topic.bind(py).to_string(),
            self.message.qos
        )
    }
}
