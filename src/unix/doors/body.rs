//! The end of a request's body, so that nothing that follows it is passed on (RFC 9112, section 6).
//!
//! Pure. Unaware of what is in the body.

/// How much of a body is still to come.
#[derive(Clone, Debug)]
pub(super) struct Body(Part);

/// The part of a body that the next byte belongs to.
#[derive(Clone, Debug)]
enum Part {
    /// The number of bytes that follow.
    Bytes(u64),
    /// The size of a chunk: digits so far, and their value.
    Size(u32, u64),
    /// An extension after a size on its line, and that size.
    Extension(u64),
    SizeEnd(u64),
    Chunk(u64),
    ChunkReturn,
    ChunkEnd,
    /// A line after the last chunk: whether it is empty so far.
    Trailer(bool),
    TrailerEnd(bool),
    /// Not a chunked body.
    Broken,
}

/// More digits of a chunk's size would not fit.
const SIZE_DIGITS: u32 = 15;

impl Body {
    pub(super) fn of_length(length: u64) -> Self {
        Self(Part::Bytes(length))
    }

    pub(super) fn in_chunks() -> Self {
        Self(Part::Size(0, 0))
    }

    /// True if nothing more belongs to it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.0, Part::Bytes(0))
    }

    /// The number of the next bytes that belong to it; 0 although it is not over: it is malformed.
    pub(super) fn measure(&self, bytes: &[u8]) -> usize {
        let mut ahead = self.clone();
        let rest = ahead.advance(bytes);
        bytes.len() - rest
    }

    /// Goes past bytes that belong to it. Returns how many of them do not.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) -> usize {
        while let Some(first) = bytes.first() {
            match &mut self.0 {
                Part::Bytes(0) | Part::Broken => break,
                Part::Bytes(left) | Part::Chunk(left) => {
                    let many = usize::try_from(*left).map_or(bytes.len(), |it| it.min(bytes.len()));
                    *left -= many as u64;
                    bytes = &bytes[many..];
                    if matches!(self.0, Part::Chunk(0)) {
                        self.0 = Part::ChunkReturn;
                    }
                    continue;
                }
                _ => {}
            }
            self.0 = self.after(*first);
            if matches!(self.0, Part::Broken) {
                break;
            }
            bytes = &bytes[1..];
        }
        bytes.len()
    }

    /// The part that follows a byte of a line.
    fn after(&self, byte: u8) -> Part {
        let digit = char::from(byte).to_digit(16);
        match (&self.0, byte, digit) {
            (Part::Size(many, value), _, Some(digit)) if *many < SIZE_DIGITS => {
                Part::Size(many + 1, value << 4 | u64::from(digit))
            }
            (Part::Size(1.., size) | Part::Extension(size), b'\r', _) => Part::SizeEnd(*size),
            (Part::Size(1.., size), b';' | b' ' | b'\t', _) => Part::Extension(*size),
            (Part::Extension(size), byte, _) if byte == b'\t' || !byte.is_ascii_control() => {
                Part::Extension(*size)
            }
            (Part::SizeEnd(0) | Part::TrailerEnd(false), b'\n', _) => Part::Trailer(true),
            (Part::SizeEnd(size), b'\n', _) => Part::Chunk(*size),
            (Part::ChunkReturn, b'\r', _) => Part::ChunkEnd,
            (Part::ChunkEnd, b'\n', _) => Part::Size(0, 0),
            (Part::Trailer(is_empty), b'\r', _) => Part::TrailerEnd(*is_empty),
            (Part::TrailerEnd(true), b'\n', _) => Part::Bytes(0),
            (Part::Trailer(_), byte, _) if byte == b'\t' || !byte.is_ascii_control() => {
                Part::Trailer(false)
            }
            _ => Part::Broken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_where_its_length_says() {
        let mut body = Body::of_length(3);
        assert_eq!(body.measure(b"abcGET"), 3);
        assert_eq!(body.advance(b"ab"), 0);
        assert!(!body.is_over());
        assert_eq!(body.advance(b"cGET"), 3);
        assert!(body.is_over() && body.measure(b"x") == 0);
    }

    #[test]
    fn a_body_in_chunks_ends_after_its_last_line_wherever_it_is_cut() {
        let whole = b"5;a=b\r\nhello\r\n00a \r\n0\r\n\r\n6789x\r\n0\r\nTrailer: 1\r\n\r\n";
        let sent = [&whole[..], b"GET http://evil.net/ HTTP/1.1\r\n\r\n"].concat();
        for cut in 0..sent.len() {
            let mut body = Body::in_chunks();
            let first = body.measure(&sent[..cut]);
            body.advance(&sent[..first]);
            let second = body.measure(&sent[first..]);
            assert_eq!(first + second, whole.len(), "{cut}");
            body.advance(&sent[first..first + second]);
            assert!(body.is_over());
        }
    }

    #[test]
    fn what_is_no_chunk_ends_the_connection() {
        for text in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "1\nx",
            "1\r\nxx\r\n",
            "1\r\nx\n",
            "1;\n",
            "0\r\n\n",
            "0\r\na\n\r\n",
            "0x1\r\n",
            "10000000000000000\r\n",
            " 1\r\n",
            "1\r\r\n",
        ] {
            let mut body = Body::in_chunks();
            body.advance(text.as_bytes());
            assert!(body.measure(b"x") == 0 && !body.is_over(), "{text:?}");
        }
    }
}
