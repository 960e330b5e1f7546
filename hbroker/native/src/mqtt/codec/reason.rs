//! Reason codes (MQTT 5 §2.4), and their return codes in earlier versions (MQTT 3.1.1 §3.2.2.3).

/// A reason code, as encoded in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

macro_rules! reasons {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Reason {
            $(#[doc = $text] pub const $name: Self = Self($code);)*
        }
    };
}

reasons! {
    SUCCESS = 0x00, "success";
    DISCONNECT_WITH_WILL = 0x04, "disconnect_with_will_message";
    NO_MATCHING_SUBSCRIBERS = 0x10, "no_matching_subscribers";
    CONTINUE_AUTHENTICATION = 0x18, "continue_authentication";
    REAUTHENTICATE = 0x19, "re_authenticate";
    UNSPECIFIED = 0x80, "unspecified_error";
    MALFORMED = 0x81, "malformed_packet";
    PROTOCOL_ERROR = 0x82, "protocol_error";
    IMPLEMENTATION_SPECIFIC = 0x83, "implementation_specific_error";
    UNSUPPORTED_VERSION = 0x84, "unsupported_protocol_version";
    CLIENT_ID_INVALID = 0x85, "client_identifier_not_valid";
    BAD_CREDENTIALS = 0x86, "bad_user_name_or_password";
    NOT_AUTHORIZED = 0x87, "not_authorized";
    SERVER_UNAVAILABLE = 0x88, "server_unavailable";
    SERVER_BUSY = 0x89, "server_busy";
    BANNED = 0x8A, "banned";
    SHUTTING_DOWN = 0x8B, "server_shutting_down";
    BAD_AUTHENTICATION_METHOD = 0x8C, "bad_authentication_method";
    KEEP_ALIVE_TIMEOUT = 0x8D, "keep_alive_timeout";
    TAKEN_OVER = 0x8E, "session_taken_over";
    TOPIC_FILTER_INVALID = 0x8F, "topic_filter_invalid";
    TOPIC_NAME_INVALID = 0x90, "topic_name_invalid";
    PACKET_ID_IN_USE = 0x91, "packet_identifier_in_use";
    PACKET_ID_NOT_FOUND = 0x92, "packet_identifier_not_found";
    RECEIVE_MAXIMUM_EXCEEDED = 0x93, "receive_maximum_exceeded";
    TOPIC_ALIAS_INVALID = 0x94, "topic_alias_invalid";
    PACKET_TOO_LARGE = 0x95, "packet_too_large";
    QUOTA_EXCEEDED = 0x97, "quota_exceeded";
    PAYLOAD_FORMAT_INVALID = 0x99, "payload_format_invalid";
    USE_ANOTHER_SERVER = 0x9C, "use_another_server";
    CONNECTION_RATE_EXCEEDED = 0x9F, "connection_rate_exceeded";
}

impl Reason {
    /// Whether this is a failure.
    pub fn is_failure(self) -> bool {
        self.0 >= 0x80
    }

    /// The reason string of the acknowledgement of a refused message; empty: none.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::NOT_AUTHORIZED => "this client may not publish to this topic",
            Self::TOPIC_NAME_INVALID => "the network has no such topic",
            Self::QUOTA_EXCEEDED => {
                "the message is larger than the network carries, or there is no room for it"
            }
            Self::PAYLOAD_FORMAT_INVALID => "the payload is not what its format indicator says",
            Self::IMPLEMENTATION_SPECIFIC => "the network does not take this message",
            Self::UNSPECIFIED => "the owner of the topic did not take the message",
            Self::PACKET_ID_NOT_FOUND => "no message is under way with this packet identifier",
            _ => "",
        }
    }

    /// The reason code for a return code of CONNACK before MQTT 5. A value that is no such return code
    /// already is a reason code.
    pub fn of_return_code(code: u8) -> Self {
        match code {
            1 => Self::UNSUPPORTED_VERSION,
            2 => Self::CLIENT_ID_INVALID,
            3 => Self::SERVER_UNAVAILABLE,
            4 => Self::BAD_CREDENTIALS,
            5 => Self::NOT_AUTHORIZED,
            _ => Self(code),
        }
    }

    /// The return code of CONNACK in MQTT 3.1.1 (MQTT 5 §3.2.2.3) and 3.1. A reason without a return code
    /// becomes "server unavailable".
    pub fn return_code(self) -> u8 {
        match self {
            Self::SUCCESS => 0,
            Self::UNSUPPORTED_VERSION => 1,
            Self::CLIENT_ID_INVALID => 2,
            Self::BAD_CREDENTIALS => 4,
            Self::NOT_AUTHORIZED | Self::BANNED | Self::BAD_AUTHENTICATION_METHOD => 5,
            _ => 3,
        }
    }
}
