//! Checks the messages that the core does not read: the control packets, which Python receives as their
//! bytes.

use super::Malformed;
use super::reader::Reader;
use crate::schema::{Check, Checks};

/// Whether a protobuf parser accepts this message. (The recursion is as deep as the schema, which has no
/// cycles.)
pub fn check(mut message: Reader<'_>, checks: Checks) -> Result<(), Malformed> {
    while let Some(tag) = message.tag()? {
        match checks.iter().find(|(known, _)| *known == tag) {
            None => message.skip(tag)?,
            Some((_, Check::Utf8)) => message.text().map(drop)?,
            Some((_, Check::Varints)) => message.varints()?,
            Some((_, Check::Message(inner))) => check(message.message()?, inner)?,
        }
    }
    Ok(())
}
