//! The command line: words, and flags that have a value each.

use std::collections::HashMap;
use std::str::FromStr;

use crate::Result;

/// Flags that stand alone, and change nothing here: it is always JSON that is printed.
const ALONE: &[&str] = &["--json"];

/// What was asked for.
pub struct Flags {
    words: Vec<String>,
    values: HashMap<String, String>,
}

impl Flags {
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

    /// # Errors
    /// The flag is missing, or has no such value.
    pub fn need<T: FromStr>(&self, name: &str) -> Result<T> {
        self.get(name)?.ok_or_else(|| format!("--{name} is missing").into())
    }

    /// # Errors
    /// The flag has no such value.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.values.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("--{name}: {text:?} will not do").into())
    }

    /// Numbers with commas between them.
    ///
    /// # Errors
    /// They are none.
    pub fn numbers(&self, name: &str) -> Result<Vec<usize>> {
        let text: Option<String> = self.get(name)?;
        let parts = text.as_deref().unwrap_or_default().split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| part.parse().map_err(|_| format!("--{name}: {part:?} is no number").into()))
            .collect()
    }
}
