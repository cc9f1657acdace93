//! The keys of an agent's files, a row each. From the rows come the keys that are known, their loading, the
//! record of their values, the JSON Schema, and which overrides a record may decide.
//!
//! Unaware of what a key does.

use crate::config::section::Section;
use crate::text::names::Named;
use serde_json::{Value, json};
use std::time::Duration;

/// A key of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub is_required: bool,
    /// A record cannot decide it.
    pub is_guarded: bool,
    /// For the schema.
    pub help: &'static str,
}

/// The values of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    /// A text, which may look like a number.
    Label,
    /// A whole number, at least this.
    Count(u64, Option<u64>),
    /// A number, 0 or more.
    Amount,
    Flag(Option<bool>),
    /// True, false, or this word, which may be the default.
    FlagOr(&'static str, bool),
    /// A list of texts.
    Texts,
    /// One of these.
    Words(&'static [&'static str], Option<&'static str>),
    /// A mapping of these keys.
    Keys(&'static [Key]),
    /// Read by hand; the file of the schema has the rest.
    Own,
}

pub(crate) const fn key(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key {
        name,
        kind,
        is_required: false,
        is_guarded: true,
        help,
    }
}

/// A whole number, at least `least`, with a default.
pub(crate) const fn count(name: &'static str, least: u64, default: u64, help: &'static str) -> Key {
    key(name, Kind::Count(least, Some(default)), help)
}

impl Key {
    pub(crate) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// Marks a key that determines neither where a program, a key or an answer goes, nor how much is spent.
    pub(crate) const fn harmless(mut self) -> Self {
        self.is_guarded = false;
        self
    }
}

/// The names of keys.
pub(crate) fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// The row of a dotted key.
pub(crate) fn find<'k>(keys: &'k [Key], dotted: &str) -> Option<&'k Key> {
    let (first, rest) = dotted
        .split_once('.')
        .map_or((dotted, None), |(a, b)| (a, Some(b)));
    let key = keys.iter().find(|key| key.name == first)?;
    match (rest, key.kind) {
        (None, _) => Some(key),
        (Some(rest), Kind::Keys(keys)) => find(keys, rest),
        (Some(_), _) => None,
    }
}

/// A value that is read from its key and needs no other.
pub(crate) trait KeyValue: Sized {
    /// The default if the key is not there or wrong.
    fn read(section: &Section, key: &Key) -> Self;

    /// The value as it is recorded; null is left out.
    fn record(&self) -> Value;
}

impl KeyValue for Option<u64> {
    fn read(section: &Section, key: &Key) -> Self {
        match key.kind {
            Kind::Count(1, _) => section.at_least_one(key.name),
            _ => section.read_count(key.name),
        }
    }

    fn record(&self) -> Value {
        self.map_or(Value::Null, Value::from)
    }
}

impl KeyValue for u64 {
    fn read(section: &Section, key: &Key) -> Self {
        let default = match key.kind {
            Kind::Count(_, default) => default,
            _ => None,
        };
        let count: Option<Self> = KeyValue::read(section, key);
        count.or(default).unwrap_or_default()
    }

    fn record(&self) -> Value {
        (*self).into()
    }
}

/// A number, 0 or more.
impl KeyValue for Option<f64> {
    fn read(section: &Section, key: &Key) -> Self {
        section.read_amount(key.name)
    }

    fn record(&self) -> Value {
        self.map_or(Value::Null, Value::from)
    }
}

impl KeyValue for f64 {
    fn read(section: &Section, key: &Key) -> Self {
        section.read_amount(key.name).unwrap_or_default()
    }

    fn record(&self) -> Value {
        (*self).into()
    }
}

/// Milliseconds.
impl KeyValue for Duration {
    fn read(section: &Section, key: &Key) -> Self {
        Self::from_millis(KeyValue::read(section, key))
    }

    fn record(&self) -> Value {
        (self.as_millis() as u64).into()
    }
}

/// Milliseconds; 0 is None.
impl KeyValue for Option<Duration> {
    fn read(section: &Section, key: &Key) -> Self {
        let time: Duration = KeyValue::read(section, key);
        Some(time).filter(|time| !time.is_zero())
    }

    fn record(&self) -> Value {
        self.unwrap_or_default().record()
    }
}

impl KeyValue for bool {
    fn read(section: &Section, key: &Key) -> Self {
        let default = matches!(key.kind, Kind::Flag(Some(true)));
        section.read_flag(key.name).unwrap_or(default)
    }

    fn record(&self) -> Value {
        (*self).into()
    }
}

impl KeyValue for Option<String> {
    fn read(section: &Section, key: &Key) -> Self {
        match (key.kind, section.map.get(key.name)) {
            (Kind::Label, Some(Value::Number(number))) => Some(number.to_string()),
            _ => section.read_text(key.name).map(str::to_owned),
        }
    }

    fn record(&self) -> Value {
        self.as_deref().map_or(Value::Null, Value::from)
    }
}

impl KeyValue for Option<Vec<String>> {
    fn read(section: &Section, key: &Key) -> Self {
        let texts = section.read_texts(key.name)?;
        Some(texts.into_iter().map(str::to_owned).collect())
    }

    fn record(&self) -> Value {
        self.as_ref()
            .map_or(Value::Null, |list| list.clone().into())
    }
}

/// One of a few words.
impl<T: Named> KeyValue for Option<T> {
    fn read(section: &Section, key: &Key) -> Self {
        section.read_choice(key.name, T::NAMES)
    }

    fn record(&self) -> Value {
        json!(self)
    }
}

impl<T: Named + Default> KeyValue for T {
    fn read(section: &Section, key: &Key) -> Self {
        Option::<T>::read(section, key).unwrap_or_default()
    }

    fn record(&self) -> Value {
        json!(self)
    }
}

/// A struct with a field for each key that needs no other, beside other fields, and the rows of all its keys.
macro_rules! keys {
    (
        $(#[$about:meta])*
        struct $name:ident, $rows:ident
        fields { $($(#[$other_doc:meta])* $other:ident: $other_type:ty,)* }
        keys { $($(#[$doc:meta])* $field:ident: $type:ty = $row:expr,)* }
        read by hand { $($by_hand:expr,)* }
    ) => {
        pub(crate) static $rows: &[$crate::config::keys::Key] = &[$($row,)* $($by_hand,)*];

        $(#[$about])*
        pub(crate) struct $name {
            $($(#[$other_doc])* pub $other: $other_type,)*
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            pub(crate) fn read_keys(
                &mut self,
                section: &$crate::config::section::Section) {
                $(self.$field = $crate::config::keys::KeyValue::read(section, &$row);)*
            }

            /// The keys that [`Self::read_keys`] reads, as they are recorded.
            pub(crate) fn record_keys(&self) -> serde_json::Map<String, serde_json::Value> {
                let all = [$(($row.name, $crate::config::keys::KeyValue::record(&self.$field)),)*];
                let given = all.into_iter().filter(|(_, value)| !value.is_null());
                given.map(|(name, value)| (name.to_owned(), value)).collect()
            }
        }
    };
}

pub(crate) use keys;
