//! Recognizes PNG, JPEG, GIF, WebP and PDF by their bytes. Names are ignored.
//!
//! Pure. Only heads are parsed: what follows one may be anything, and the service refuses it then.

use super::{Facts, MediaType};
use memchr::memmem;

/// Maximum number of pages that is counted.
pub(crate) const MOST_PAGES: u32 = 100_000;

/// The facts of a picture, or of a document that needs no password; none for anything else.
pub(crate) fn recognize(bytes: &[u8]) -> Option<Facts> {
    let (media_type, size) = match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', rest @ ..] => {
            (MediaType::Png, png(rest)?)
        }
        [0xFF, 0xD8, rest @ ..] => (MediaType::Jpeg, jpeg(rest)?),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', rest @ ..] => (MediaType::Gif, gif(rest)?),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            rest @ ..,
        ] => (MediaType::Webp, webp(rest)?),
        [
            b'%',
            b'P',
            b'D',
            b'F',
            b'-',
            b'1' | b'2',
            b'.',
            b'0'..=b'9',
            ..,
        ] => return pdf(bytes),
        _ => return None,
    };
    let (width, height) = size;
    (width > 0 && height > 0).then_some(Facts {
        media_type,
        size: Some(size),
        pages: None,
    })
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// PNG specification, 11.2.1: the first chunk is IHDR.
fn png(rest: &[u8]) -> Option<(u32, u32)> {
    let head = rest.strip_prefix(b"\0\0\0\x0DIHDR")?.first_chunk::<13>()?;
    let (depth, colour) = (head[8], head[9]);
    let is_valid = match colour {
        0 => matches!(depth, 1 | 2 | 4 | 8 | 16),
        3 => matches!(depth, 1 | 2 | 4 | 8),
        2 | 4 | 6 => matches!(depth, 8 | 16),
        _ => false,
    };
    let size = (big_endian(&head[..4]), big_endian(&head[4..8]));
    let fits = size.0.max(size.1) <= i32::MAX.cast_unsigned();
    (is_valid && fits && head[10] == 0 && head[11] == 0 && head[12] <= 1).then_some(size)
}

/// ITU T.81, B.1 and B.2.2: segments up to that of the frame.
fn jpeg(mut rest: &[u8]) -> Option<(u32, u32)> {
    loop {
        rest = rest.strip_prefix(&[0xFF])?;
        let (marker, behind) = rest.split_first()?;
        match marker {
            // Fill bytes before a marker.
            0xFF => {}
            0x01 | 0xD0..=0xD7 => rest = behind,
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                let frame = behind.first_chunk::<8>()?;
                return Some((big_endian(&frame[5..7]), big_endian(&frame[3..5])));
            }
            0xD8 | 0xD9 | 0xDA | 0x00 => return None,
            _ => {
                let length = big_endian(behind.get(..2)?) as usize;
                rest = behind.get(length.max(2)..)?;
            }
        }
    }
}

/// Section 18 of GIF, version 89a: the logical screen.
fn gif(rest: &[u8]) -> Option<(u32, u32)> {
    let screen = rest.first_chunk::<7>()?;
    Some((little_endian(&screen[..2]), little_endian(&screen[2..4])))
}

/// RFC 9649: the first chunk.
fn webp(rest: &[u8]) -> Option<(u32, u32)> {
    let data = rest.get(8..)?;
    Some(match &rest[..4] {
        b"VP8X" => {
            let canvas = data.first_chunk::<10>()?;
            (
                little_endian(&canvas[4..7]) + 1,
                little_endian(&canvas[7..]) + 1,
            )
        }
        b"VP8L" => {
            let head = data.first_chunk::<5>()?;
            let bits = little_endian(&head[1..]);
            let size = ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1);
            (head[0] == 0x2F).then_some(size)?
        }
        b"VP8 " => {
            let head = data.first_chunk::<10>()?;
            let side = |bytes: &[u8]| little_endian(bytes) & 0x3FFF;
            let is_key_frame = head[0] & 1 == 0 && head[3..6] == [0x9D, 0x01, 0x2A];
            is_key_frame.then_some((side(&head[6..8]), side(&head[8..])))?
        }
        _ => return None,
    })
}

/// ISO 32000-2, 7.5: a document is encrypted if a trailer, or the dictionary of a stream that serves as one, has Encrypt.
fn pdf(bytes: &[u8]) -> Option<Facts> {
    let is_encrypted = values_of(bytes, b"/Encrypt")
        .any(|value| value.starts_with(b"<<") || value.first().is_some_and(u8::is_ascii_digit));
    (!is_encrypted).then(|| Facts {
        media_type: MediaType::Pdf,
        size: None,
        pages: pages(bytes),
    })
}

/// How many pages a document has: as its linearization says, or as there are objects of pages that are not compressed.
fn pages(bytes: &[u8]) -> Option<u32> {
    let head = &bytes[..bytes.len().min(1024)];
    let is_linearized = memmem::find(head, b"/Linearized").is_some();
    let said = values_of(head, b"/N").find_map(|value| {
        let digits = value
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
    });
    let counted = values_of(bytes, b"/Type")
        .filter(|value| {
            let behind = value.strip_prefix(b"/Page");
            behind.is_some_and(|behind| !behind.first().is_some_and(u8::is_ascii_alphanumeric))
        })
        .count() as u32;
    let pages = said.filter(|_| is_linearized).unwrap_or(counted);
    (pages > 0).then_some(pages.min(MOST_PAGES))
}

/// The bytes after each occurrence of a name, without white space.
fn values_of<'b>(bytes: &'b [u8], name: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
    memmem::find_iter(bytes, name).map(move |at| bytes[at + name.len()..].trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0DIHDR".to_vec();
        out.extend(width.to_be_bytes());
        out.extend(height.to_be_bytes());
        out.extend([8, 6, 0, 0, 0, 1, 2, 3, 4]);
        out
    }

    fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
        let mut out = vec![
            0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, 0xC2, 0, 17, 8,
        ];
        out.extend(height.to_be_bytes());
        out.extend(width.to_be_bytes());
        out.push(3);
        out
    }

    fn riff(kind: &[u8], data: &[u8]) -> Vec<u8> {
        [b"RIFF\0\0\0\0WEBP", kind, b"\0\0\0\0", data].concat()
    }

    /// One of each kind, 3 by 2 where it has a size.
    fn all() -> Vec<(Vec<u8>, MediaType)> {
        vec![
            (png_of(3, 2), MediaType::Png),
            (jpeg_of(3, 2), MediaType::Jpeg),
            (b"GIF89a\x03\0\x02\0\0\0\0".to_vec(), MediaType::Gif),
            (
                riff(b"VP8X", &[0, 0, 0, 0, 2, 0, 0, 1, 0, 0]),
                MediaType::Webp,
            ),
            (riff(b"VP8L", &[0x2F, 2, 0x40, 0, 0]), MediaType::Webp),
            (
                riff(b"VP8 ", &[0, 0, 0, 0x9D, 1, 0x2A, 3, 0, 2, 0]),
                MediaType::Webp,
            ),
        ]
    }

    #[test]
    fn each_kind_is_recognized_by_its_head_and_none_by_half_of_it() {
        for (bytes, media_type) in all() {
            let facts = Facts {
                media_type,
                size: Some((3, 2)),
                pages: None,
            };
            assert_eq!(recognize(&bytes), Some(facts), "{bytes:x?}");
            let rubbish = [&bytes[..], &[0xAA; 100]].concat();
            assert_eq!(recognize(&rubbish), Some(facts));
            for end in 0..bytes.len() - 4 {
                let found = recognize(&bytes[..end]);
                assert!(
                    found.is_none() || media_type == MediaType::Jpeg,
                    "{end} {bytes:x?}"
                );
            }
        }
        assert_eq!(recognize(&png_of(0, 2)), None);
        assert_eq!(recognize(&png_of(u32::MAX, 2)), None);
        assert_eq!(
            recognize(b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
            None
        );
        assert_eq!(recognize(b" %PDF-1.7"), None);
    }

    #[test]
    fn pages_are_counted_where_they_can_be_seen_and_encrypted_documents_are_none() {
        let pages =
            |text: &str| recognize(format!("%PDF-1.7\n{text}").as_bytes()).map(|it| it.pages);
        assert_eq!(
            pages("<< /Type /Pages /Count 2>> <</Type/Page>> << /Type /Page\n>>"),
            Some(Some(2))
        );
        assert_eq!(pages("<</Linearized 1/L 9/N 12/T 7>>"), Some(Some(12)));
        assert_eq!(pages("stream"), Some(None));
        assert_eq!(pages("trailer <</Encrypt 7 0 R>>"), None);
        assert_eq!(pages("<</Encrypt<</V 4>>>>"), None);
        assert_eq!(pages("(/EncryptMetadata)"), Some(None));
    }

    #[test]
    fn no_bytes_break_the_parser() {
        let mut random = fastrand::Rng::with_seed(7);
        for (bytes, _) in all().into_iter().cycle().take(20_000) {
            let mut bytes = bytes;
            for _ in 0..random.u8(1..6) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(..=bytes.len()));
            recognize(&bytes);
        }
    }
}
