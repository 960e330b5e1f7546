//! Loss detection and congestion control (RFC 9002).
//!
//! ```text
//!     retransmission    Link: an acknowledgement, a loss, a probe timeout; what follows for packets and path
//!       `-- recovery          what is in flight; which datagrams are lost; may another be sent?
//!             |-- rtt               the round-trip time, and the probe timeout
//!             `-- congestion        the window (CUBIC), and when slow start ends (HyStart++)
//! ```

pub mod congestion;
pub mod recovery;
pub mod retransmission;
pub mod rtt;
