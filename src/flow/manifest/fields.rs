//! Mappings of a flow's files, read by tables: a field of a struct is a key, and its type says how it is read.
//!
//! Unaware of files.

use crate::config::keys::{Key, KeyValue, Kind, key};
use crate::config::section::Section;
use serde_json::{Map, Value};

/// A row of a table of keys.
pub(crate) struct Row {
    pub key: Key,
    /// Null says the same as no such key.
    pub takes_null: bool,
}

/// A key like any other.
pub(crate) const fn row(key: Key) -> Row {
    let takes_null = false;
    Row { key, takes_null }
}

/// A key of another name than its field.
pub(crate) const fn named(name: &'static str) -> Row {
    row(key(name, Kind::Own, ""))
}

/// A key that a mapping must have; `what` ends the message about one without it.
pub(crate) const fn needed(name: &'static str, what: &'static str) -> Row {
    row(key(name, Kind::Own, what).required())
}

/// A key that can be null.
pub(crate) const fn or_null(name: &'static str) -> Row {
    Row {
        takes_null: true,
        ..named(name)
    }
}

impl<'n> Section<'n> {
    /// A value that is not null.
    pub(crate) fn value(&self, key: &str) -> Option<&'n Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The strings of a list; none if one of them is not.
    pub(crate) fn texts(&self, key: &str) -> Vec<&'n str> {
        self.read_texts(key).unwrap_or_default()
    }

    /// Reports that the value of a key is something else, of which nothing can be read.
    pub(crate) fn refuse_value<T>(&self, key: &str, expected: &str) -> Option<T> {
        self.mismatch(key, expected);
        None
    }

    /// A number of things that may be under way at once.
    pub(super) fn limit(&self, key: &str) -> Option<usize> {
        let count = self.read_count(key)?;
        if count == 0 {
            let name = self.name(key);
            let message = format!("{name}: 0 would let nothing run; give 1 or more");
            self.error(key, message);
        }
        usize::try_from(count).ok().filter(|count| *count > 0)
    }

    /// The mappings of a list; none if there is no list.
    pub(crate) fn mappings(&self, key: &str) -> Vec<Self> {
        if self.value(key).is_none() {
            return Vec::new();
        }
        let all = self.read_sections(key).into_iter();
        all.map(|(_, section)| section).collect()
    }

    pub(crate) fn get<T: FromKey>(&self, key: &'static str) -> T {
        self.read_row(&named(key))
    }

    pub(crate) fn read_row<T: FromKey>(&self, row: &Row) -> T {
        let Row { key, takes_null } = row;
        if !self.has(key.name) && key.is_required {
            let whose = self.name("");
            let message = format!("{whose}has no {}; needs {}", key.name, key.help);
            self.error("", message);
        }
        if *takes_null && self.value(key.name).is_none() {
            let nothing = Map::new();
            return T::from_key(&self.inner(&nothing, Vec::new()), key);
        }
        T::from_key(self, key)
    }
}

/// A struct with a field for each key that is read by its type, beside other fields.
macro_rules! fields {
    (
        $(#[$about:meta])*
        struct $Name:ident {
            $($(#[$doc:meta])* $field:ident: $Type:ty $(= $row:expr)?,)*
        }
        $(beside { $($(#[$other_doc:meta])* $other:ident: $Other:ty,)* })?
        $(for people { $($text:literal),* })?
        $(by hand { $($by_hand:literal),* })?
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $Name {
            $($(#[$doc])* pub $field: $Type,)*
            $($($(#[$other_doc])* pub $other: $Other,)*)?
        }

        impl $Name {
            pub(crate) const KEYS: &'static [&'static str] =
                &[$($crate::flow::manifest::fields::row_of!($field $(= $row)?).key.name,)* $($($text,)*)? $($($by_hand,)*)?];

            /// Reads the keys of a mapping. The other fields have their defaults.
            pub(crate) fn read_keys(node: &$crate::config::section::Section<'_>) -> Self {
                node.warn_of_unknown_keys(Self::KEYS);
                $($(node.read_text($text);)*)?
                Self {
                    $($field: node.read_row(&$crate::flow::manifest::fields::row_of!($field $(= $row)?)),)*
                    $($($other: std::default::Default::default(),)*)?
                }
            }
        }
    };
}

macro_rules! row_of {
    ($field:ident) => {
        $crate::flow::manifest::fields::named(stringify!($field))
    };
    ($field:ident = $row:expr) => {
        $row
    };
}

pub(crate) use {fields, row_of};

/// A value that is read from its key.
pub(crate) trait FromKey: Sized {
    /// The default if the key is not there or wrong.
    fn from_key(node: &Section, key: &Key) -> Self;
}

impl<T: KeyValue> FromKey for T {
    fn from_key(node: &Section, key: &Key) -> Self {
        T::read(node, key)
    }
}

/// A number of things that may be under way at once.
impl FromKey for Option<usize> {
    fn from_key(node: &Section, key: &Key) -> Self {
        node.limit(key.name)
    }
}

/// A program's exit code that is not 0.
impl FromKey for Option<i32> {
    fn from_key(node: &Section, key: &Key) -> Self {
        node.read_exit_code(key.name)
    }
}

/// A number of repetitions.
impl FromKey for u32 {
    fn from_key(node: &Section, key: &Key) -> Self {
        u64::from_key(node, key).min(Self::MAX.into()) as Self
    }
}

impl FromKey for Option<bool> {
    fn from_key(node: &Section, key: &Key) -> Self {
        node.read_flag(key.name)
    }
}

impl FromKey for Vec<String> {
    fn from_key(node: &Section, key: &Key) -> Self {
        Option::<Self>::from_key(node, key).unwrap_or_default()
    }
}
