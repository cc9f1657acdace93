//! Writing JSON by pieces, so that what is recorded can be spliced without decoding it.
//!
//! Unaware of what the objects are.

use serde::Serialize;

/// Writes the members of an object one after another.
///
/// What is given as raw must be JSON.
pub struct Object<'b> {
    out: &'b mut Vec<u8>,
    empty: bool,
}

impl<'b> Object<'b> {
    /// Begins an object; [`Self::end`] ends it.
    pub fn begin(out: &'b mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        string(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// A member of any type that can be serialised.
    pub fn put(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        let out = self.key(key);
        push(out, value);
        self
    }

    /// A member whose value is JSON already.
    pub fn raw(&mut self, key: &str, json: &[u8]) -> &mut Self {
        self.key(key).extend_from_slice(json);
        self
    }

    /// A member whose value the caller writes behind this.
    pub fn nest(&mut self, key: &str) -> &mut Vec<u8> {
        self.key(key)
    }

    /// Ends the object.
    pub fn end(&mut self) {
        self.out.push(b'}');
    }
}

/// Writes a value.
pub fn push(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let start = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        // Only maps whose keys are not strings fail, and there are none.
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}

/// Writes a string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    push(out, text);
}

/// A value as one line of text.
#[must_use]
pub fn text(value: &(impl Serialize + ?Sized)) -> String {
    let mut out = Vec::new();
    push(&mut out, value);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_in_order_and_raw_ones_as_they_are() {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object
            .put("a", "x\"\n")
            .raw("b", b"[1, 2]")
            .put("c", &None::<u8>);
        Object::begin(object.nest("d")).end();
        object.end();
        assert_eq!(out, br#"{"a":"x\"\n","b":[1, 2],"c":null,"d":{}}"#);
    }
}
