//! The reasons that the core itself gives or acts on; the enum is in the `.proto` (§8).

pub const SUCCESS: i32 = 0;
pub const NO_MATCHING_SUBSCRIBERS: i32 = 1;
pub const NOT_RESPONSIBLE: i32 = 2;
pub const HANDOVER: i32 = 3;
pub const TOPIC_NAME_INVALID: i32 = 9;
pub const QUOTA_EXCEEDED: i32 = 11;
pub const PROTOCOL_ERROR: i32 = 15;
