//! Loss detection and congestion control (RFC 9002).

pub mod congestion;
pub mod hystart;
pub mod loss_detection;
pub mod probing;
pub mod recovery;
pub mod rtt;
