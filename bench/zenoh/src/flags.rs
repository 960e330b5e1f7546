//! The command line: words, and flags with a value each.

use std::collections::HashMap;
use std::str::FromStr;

use crate::Result;

/// Flags without a value. They change nothing here: the output is always JSON.
const ALONE: &[&str] = &["--json"];

/// The parsed command line.
pub struct Flags {
    words: Vec<String>,
    values: HashMap<String, String>,
}

impl Flags {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// A flag has no value.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut flags = Self { words: Vec::new(), values: HashMap::new() };
        let mut arguments = arguments.filter(|argument| !ALONE.contains(&argument.as_str()));
        while let Some(argument) = arguments.next() {
            match argument.strip_prefix("--") {
                Some(name) => {
                    let value = arguments.next().ok_or_else(|| format!("--{name} has no value"))?;
                    flags.values.insert(name.to_owned(), value);
                }
                None => flags.words.push(argument),
            }
        }
        Ok(flags)
    }

    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// The value of a required flag.
    ///
    /// # Errors
    /// The flag is missing, or its value is not a `T`.
    pub fn need<T: FromStr>(&self, name: &str) -> Result<T> {
        self.get(name)?.ok_or_else(|| format!("--{name} is missing").into())
    }

    /// The value of an optional flag.
    ///
    /// # Errors
    /// Its value is not a `T`.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.values.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("--{name}: {text:?} will not do").into())
    }

    /// The value of a flag as a list of numbers, separated by commas. Empty without the flag.
    ///
    /// # Errors
    /// A part of it is not a number.
    pub fn numbers(&self, name: &str) -> Result<Vec<usize>> {
        let text: Option<String> = self.get(name)?;
        let parts = text.as_deref().unwrap_or_default().split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| part.parse().map_err(|_| format!("--{name}: {part:?} is no number").into()))
            .collect()
    }
}
