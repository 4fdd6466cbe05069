//! Configurations as JSON.

use crate::config_error::ConfigError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Declares a struct of the entries of an object, with their default values.
macro_rules! entries {
    (
        $(#[$doc:meta])*
        struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $t:ty = $value:expr,)+ }
    ) => {
        $(#[$doc])*
        #[derive(serde::Deserialize)]
        #[serde(default)]
        struct $name { $($(#[$field_doc])* $field: $t,)+ }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $value,)+ }
            }
        }
    };
}
pub(super) use entries;

/// The entries of an object as a struct. A field given twice is an error.
pub(super) fn parse<C: DeserializeOwned>(text: &str) -> Result<C, ConfigError> {
    use serde_json::error::Category::{Eof, Syntax};
    serde_json::from_str(text).map_err(|e| {
        ConfigError(match e.classify() {
            Syntax | Eof => format!("it is no JSON: {e}"),
            _ => e.to_string(),
        })
    })
}

/// The text, as `transformers` writes it.
pub(super) fn text(json: &Value) -> String {
    format!("{json:#}\n")
}

/// An error unless all options have the only supported value: name, whether it has, and the value.
pub(super) fn supported(options: &[(&str, bool, String)]) -> Result<(), ConfigError> {
    match options.iter().find(|(_, supported, _)| !supported) {
        Some((name, _, value)) => Err(ConfigError(format!("{name} = {value} is not supported"))),
        None => Ok(()),
    }
}
