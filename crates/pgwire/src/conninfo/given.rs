//! Settings of a connection string and the environment, by keyword.

use super::error::ConninfoError;
use super::keywords::{KEYWORDS, REFUSED, check_keyword};

/// The value of a keyword, and its source for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    keyword: &'static str,
    /// The keyword, or the environment variable that set the value.
    source: &'static str,
    pub(super) value: String,
}

/// All settings, including those of the environment.
pub(super) struct Settings(Vec<Setting>);

impl Settings {
    /// Collects the settings. `has_own_encoding`: the environment does not set the encoding.
    pub(super) fn collect(
        given: &[(String, String)],
        variable: &dyn Fn(&str) -> Option<String>,
        has_own_encoding: bool,
    ) -> Result<Self, ConninfoError> {
        for (keyword, value) in given {
            check_keyword(keyword, value)?;
        }
        for (keyword, name, harmless, why) in REFUSED {
            let value = name.and_then(variable).filter(|value| !value.is_empty());
            let is_given = given.iter().any(|(k, _)| k == keyword);
            if let (Some(name), Some(value), false) = (name, value, is_given) {
                if !harmless.contains(&value.as_str()) {
                    return Err(ConninfoError::Unsupported { setting: name.to_owned(), why });
                }
            }
        }
        let settings = KEYWORDS.iter().filter_map(|&(keyword, name)| {
            if let Some((_, value)) = given.iter().rev().find(|(k, _)| k == keyword) {
                return Some(Setting { keyword, source: keyword, value: value.clone() });
            }
            let name = name.filter(|_| keyword != "client_encoding" || !has_own_encoding)?;
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some(Setting { keyword, source: name, value })
        });
        Ok(Self(settings.collect()))
    }

    pub(super) fn find(&self, keyword: &str) -> Option<&Setting> {
        self.0.iter().find(|s| s.keyword == keyword)
    }

    /// The value, `None` if it is empty, which means the default.
    pub(super) fn text(&self, keyword: &str) -> Option<String> {
        self.find(keyword).map(|s| s.value.clone()).filter(|value| !value.is_empty())
    }

    /// The choice with the name of the value; the first one if the keyword is not set.
    pub(super) fn one_of<T: Copy>(
        &self,
        keyword: &str,
        expected: &'static str,
        choices: &[(&str, T)],
    ) -> Result<T, ConninfoError> {
        let Some(setting) = self.find(keyword) else { return Ok(choices[0].1) };
        let found = choices.iter().find(|(name, _)| *name == setting.value);
        found.map(|(_, choice)| *choice).ok_or_else(|| setting.invalid(expected))
    }

    pub(super) fn invalid(&self, keyword: &str, expected: &'static str) -> ConninfoError {
        let setting = self.find(keyword).map_or(keyword, |s| s.source).to_owned();
        ConninfoError::InvalidValue { setting, expected }
    }
}

impl Setting {
    pub(super) fn invalid(&self, expected: &'static str) -> ConninfoError {
        ConninfoError::InvalidValue { setting: self.source.to_owned(), expected }
    }
}
