//! Loss detection and congestion control (RFC 9002).
//!
//! ```text
//!     loss_detection    Link: an acknowledgement, a loss, a probe timeout; what follows for packets and path
//!       `-- recovery          what is in flight; which datagrams are lost; may another be sent?
//!             |-- rtt               the round-trip time
//!             |-- probing           the probe timeout, and its doubling
//!             `-- congestion        the window (CUBIC)
//!                   `-- hystart           when slow start ends
//! ```

pub mod congestion;
pub mod hystart;
pub mod loss_detection;
pub mod probing;
pub mod recovery;
pub mod rtt;
